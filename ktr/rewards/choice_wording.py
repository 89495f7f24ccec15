"""How people name, state, deny and list options in an answer: the wording that `choice` listens for."""

from __future__ import annotations

import re

from ktr.rewards.text import ANSWER_WORDS

MASK = "\ue000"  # stands for the text of an option, so that letters inside it are not read as labels
LETTER = "A-Za-z\u00c0-\u024f"
OPEN, CLOSE = r"[(\[{\"'<“‘]", r"[)\]}\"'>”’]"
KIND = r"(?:options?|choices?|opt\.|alternatives?|selections?|letters?)"

NEGATED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bnever|\bneither|\bnor|\bexcept(?:\s+for)?|\brather\s+than|\binstead\s+of|\bunlike|\bover|\bthan"
    r"|\bexclud\w+|\beliminat\w+|\brul(?:e|ed|ing)\s+out|\bcannot|\bnicht|\bkein\w*|不是|不选|不選|而非|并非|排除)"
    r"\s*(?:\b(?:be|is|just|only|simply|correspond\s+to|align\s+with|match|fit|support|choose|pick|select)\b\s*)*"
    rf"(?:\bthe\b\s*)?(?:\b(?:{KIND}|answer)\b\s*:?\s*)?{OPEN}*\s*$",
    re.IGNORECASE,
)
NEGATED_AFTER = re.compile(
    rf"^{CLOSE}*[\s{MASK}.,:]*\b(?:is|are|was|were|seems?|looks?|can|could|would|does|do|has|have|must)\s*"
    r"(?:n['’]t\b|\s*not\b|(?:\w+\s+){0,2}?(?:wrong|incorrect|false|excluded|eliminated|impossible|implausible|unlikely"
    r"|ruled\s+out|mistaken|invalid|out)\b)"
    rf"|^{CLOSE}*\s*\?\s*(?:no|nope|nein|non|wrong|not)\b"
    rf"|^{CLOSE}*[\s{MASK}]*,?\s*\bnone\s+(?:of\s+(?:them|these|those)\s+)?(?:match|fit|appl|work|hold|is|are)",
    re.IGNORECASE,
)
STATED_BEFORE = re.compile(
    rf"(?:(?<![{LETTER}])(?:{ANSWER_WORDS})(?:\s+(?:to|for|of)\s[^.,;:\n]{{1,30}}?)?\s*(?:here\s+|{KIND}\s+)?"
    r"|(?<![" + LETTER + r"])(?:one|verdict|conclusion|pick|choice|option|selection|solution|label|guess|prediction)"
    r"\s*(?=\b(?:is|must|would|should|will|has)\b|:|=)"
    r"|(?:\b(?:it|this|that|which|here)(?=\s|['’]s))\s*(?=['’]s|is|must|should|would|has)"
    r"|\b(?:choos(?:e|ing)|chose|pick(?:ed|ing)?|select(?:ed|ing)?|go(?:ing)?\s+(?:with|for)|opt(?:ed|ing)?\s+for"
    r"|settl(?:e|ing)\s+(?:on|for)|say|conclude|prefer|vote\s+for)\s+"
    r"|(?<!not )(?<!n['’]t )\b(?:correspond(?:s|ing)?\s+to|align(?:s|ing)?\s+with"
    r"|match(?:es|ing)?(?=\s+(?:option|choice)))\s+"
    r"|\b(?:so|therefore|thus|hence|finally|consequently|actually|instead|rather)\b\s*[,:]?\s*"
    r"|(?:=>|[-=]>|→|⇒|∴)\s*|选择?|選擇?)"
    r"(?:['’]s\b|\b(?:is|are|was|ist|lautet|es|est|must\s+be|should\s+be|would\s+be|will\s+be|has\s+to\s+be)\b"
    r"|[是为為は은는]|應為|应为)?"
    rf"\s*[:=：→]*\s*(?:\b(?:the|most|likely|probably|clearly|definitely|actually|simply|therefore|thus|indeed|{KIND})\b"
    rf"\s*:?\s*|{OPEN})*\s*$",
    re.IGNORECASE,
)
STATED_AFTER = re.compile(
    rf"^{CLOSE}*[.,:]?[\s{MASK}.,]*\b(?:is|was|must\s+be|seems|looks|appears)\s+(?:to\s+be\s+)?"
    r"(?:(?!not\b|wrong\b)\w+\s+){0,3}?(?:correct|right|best|better|answer|true|accurate|suitable|appropriate)\b"
    rf"|^{CLOSE}*\s*(?:是正确|正确|是对的)"
    rf"|^{CLOSE}*\s+(?:best\s+(?:fits|matches|describes|captures|answers)|(?:fits|matches|describes)\s+(?:\w+\s+){{0,4}}?best)\b",
    re.IGNORECASE,
)
JOINED = re.compile(
    rf"\s*{CLOSE}*[\s{MASK}.:]*(?P<link>[,/|&+?、;]|\b(?:or|and|nor|und|oder|et|ou|y|o|e)\b|和|或|及|与|還是|还是|\s"
    r"|(?<=[)\]])(?=[(\[]))"
    rf"\s*(?:\b(?:or|and|maybe|possibly|perhaps|both|either|{KIND})\b\s*)*{OPEN}*\s*",
    re.IGNORECASE,
)
ENDS_ITEM = re.compile(rf"{CLOSE}*\s*(?:$|[.,;:/&?!、。\n{MASK})]|(?:or|and|are|both)\b|[和或])", re.IGNORECASE)
AFTER_LABEL_A = re.compile(
    r"\s+(?:is|or|and|was|because|since|as|but|not|are|seems|looks|appears|matches|fits|describes|would|should|must|can|"
    r"could|might|may|has|which|while|whereas|instead|rather|only|shows?)\b"
)
AFTER_LABEL_I = re.compile(r"\s+(?:is|or|and|because|since|but|instead|rather|matches|fits|describes|shows)\b")
NAMES_BEFORE = re.compile(
    r"\b(?:vitamins?|plan|types?|grade|hepatitis|team|group|class|section|figure|fig\.|part|points?|player|person|"
    r"line|area|zone|room|gate|track|side|level|phase|model|version|step|angle|vertex|node|variable)\s+$",
    re.IGNORECASE,
)
LINE_START = re.compile(rf"(?:^|[\n;.])\W*(?:{KIND}\W*)?$", re.IGNORECASE)
NUMBERED = re.compile(
    r"\b(?:option|choice|caption|sentence|description|statement)\s+(?P<number>[1-9])\b(?![.,]?\d)", re.IGNORECASE
)
ENUMERATOR = re.compile(r"^\(?\d{1,2}\)\s+")
LAST_PARAGRAPH = re.compile(r"\n\s*\n([^\n]+)\s*\Z")
OPENING_LABEL = re.compile(r"\s*(?P<label>[A-Z])[.)](?!.*\b(?i:incorrect|wrong|false)\b)")
