"""One clear line for the errors a person can mend; everything else keeps its traceback."""

from __future__ import annotations

import re
import traceback

from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from ktr.config.convert import takes_list, unknown_key
from ktr.config.fields import ConfigError
from ktr.rewards.runner import RewardFailure

OWN_PACKAGES = ("ktr.", "launchers.")


def one_line(error: BaseException, schema: type) -> str | None:
    """What to tell the person about `error`, or None where it is not theirs to mend.

    Theirs are errors of the config, files that are missing or unreadable, and every `ValueError` the project itself
    raises, and rewards that keep failing; a `ValueError` from within a library is a fault that needs its traceback.
    """
    if isinstance(error, ConfigError):
        return _flat(str(error))
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _flat(_config_message(error, schema))
    if isinstance(error, OSError) and error.filename is not None:
        return _flat(f"{error.filename}: {error.strerror}")
    if isinstance(error, RewardFailure):
        return _flat(
            f"{error}. Each reply and its whole trace are in reward_errors.jsonl of the run's folder; mend the reward, "
            "or raise reward.max_error_share"
        )
    if isinstance(error, ValueError) and _raised_here(error):
        return _flat(str(error))
    return None


def _config_message(error: BaseException, schema: type) -> str:
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None and cause not in chain:
        chain.append(cause)
    for cause in reversed(chain):
        if isinstance(cause, ConfigAttributeError | ConfigKeyError) and str(cause.full_key).startswith("hydra."):
            return f"{cause.full_key}: unknown key; --cfg hydra shows those there are"
        if isinstance(cause, ConfigAttributeError | ConfigKeyError) and cause.full_key:
            return str(unknown_key(cause.full_key, schema))
        if isinstance(cause, OmegaConfBaseException) and cause.full_key:
            return f"{cause.full_key}: {_first_line(cause)}"
    if isinstance(error, MissingConfigException):
        missing = re.search(r"Could not find '([^']+)/([^'/]+)'", str(error))
        offered = ", ".join(error.options or ())
        if missing and offered:
            return f"{missing[1]}={missing[2]}: no such choice; {missing[1]} offers {offered}"
    if isinstance(error, OverrideParseException) and error.override and re.fullmatch(r"[\w./-]+", error.override):
        return f"{error.override}: not a setting; settings are KEY=VALUE, such as debug=fast"
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override}: {_first_line(error)}; put a value with special characters in quotes of its own, "
            'such as "\'key=\\"a=b\\"\'" in a shell'
        )
    if isinstance(error, ConfigCompositionException):
        group = re.search(r"Could not override '([^']+)'", str(error))
        if group:
            return str(unknown_key(group[1], schema))
        several = re.match(r"Ambiguous value for argument '([^=]+)=(.*)'$", str(error).strip(), re.MULTILINE)
        if several:
            key, values = several.groups()
            if takes_list(key.lstrip("+"), schema):
                return f"{key}={values}: a list is written {key}=[{values}]; -m would run one job for each value"
            return f"{key}={values}: takes one value; add -m to run one job for each"
    return str(error)


def _raised_here(error: BaseException) -> bool:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and f"{frames[-1].f_globals.get('__name__', '')}.".startswith(OWN_PACKAGES)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _flat(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.strip())
