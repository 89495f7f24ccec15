"""Schemas of the three entries: one typed node for each group, and the pairs across groups that cannot work."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ktr.config.fields import MAX_SEED, ConfigError, Node, free_text, items, number
from ktr.config.schema_eval import EvalConfig
from ktr.config.schema_inputs import DataConfig, ModelConfig
from ktr.config.schema_learning import GrpoConfig, KtrConfig, RewardConfig, SftConfig
from ktr.config.schema_running import LoggerConfig, RolloutConfig
from ktr.rewards.problem_types import canonical_type

STAGES = ("sft", "rl", "eval")
# What a run's held-out rows give; see `ktr.reporting.run_figures` for all names of figures.
EVALUATED = ("accuracy", "accuracy_shuffled", "rl_minus_sft", "attribution", "by_kind", "by_kind_shuffled")


@dataclass
class RunConfig(Node):
    """What every entry has: where the run folder lies (`output_dir`/`name`/id), the seed, and trusted plugins.

    `plugins` lists dotted prefixes whose objects may be built by `_target_`, beside the project's own.

    Example::

        python train.py name=first_try seed=1 plugins=[my_package.rewards]
    """

    name: str = "toy"
    seed: int = number(0, ge=0, le=MAX_SEED)
    output_dir: str = free_text("outputs")
    plugins: list[str] = items()
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)

    def check(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise ConfigError("name", f"names a folder: letters, digits, '.', '_' and '-' only, not {self.name!r}")
        if not self.output_dir.strip():
            raise ConfigError("output_dir", "is empty: the folder that holds the run folders, such as outputs")
        data = self.data
        if (
            self.needs_rows()
            and data.format != "toy"
            and not (data.path or data.eval_path or data.sft_path or data.mix)
        ):
            raise ConfigError("data.path", f"is required with data={data.name}: a file of rows")
        for prefix in self.plugins:
            if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", prefix):
                raise ConfigError("plugins", f"{prefix!r} is not a dotted module name such as my_package.rewards")

        if not self.model.path and self.model.name != "toy" and self.needs_model():
            raise ConfigError(
                "model.path", f"is required with model={self.model.name}: a checkpoint folder or a hub name"
            )

    def needs_model(self) -> bool:
        """Whether the entry, as it is set, loads a checkpoint."""
        return True

    def needs_rows(self) -> bool:
        """Whether the entry reads rows of `data`."""
        return True

    def check_length(self, key: str, new_tokens: int) -> None:
        """Refuses completions that the toy model, whose length is known beforehand, has no room for."""
        prompt, longest = self.data.max_prompt_tokens, self.model.toy.max_length
        if self.model.path is None and prompt is not None and prompt + new_tokens > longest:
            raise ConfigError(
                key,
                f"={new_tokens} and data.max_prompt_tokens={prompt} together exceed model.toy.max_length={longest}",
            )


@dataclass
class TrainConfig(RunConfig):
    """`train.py`: the stages of a run, in order. `resume` names a run folder to go on in, or is `auto`; `threads`
    is torch's number of CPU threads (null leaves it to torch): one is best for a toy model, and makes results equal on
    any machine. `metric` names the figure that a search (`hydra/sweeper=optuna`) gets from a run: null is the accuracy.

    Example::

        python train.py stages=[rl,eval] model.path=outputs/toy/20260101-120000-ab12cd/checkpoints/sft
    """

    stages: list[str] = items(*STAGES)
    resume: str | None = free_text()
    threads: int | None = number(None, ge=1)
    metric: str | None = free_text()
    reward: RewardConfig = field(default_factory=RewardConfig)
    ktr: KtrConfig = field(default_factory=KtrConfig)
    trainer: GrpoConfig = field(default_factory=GrpoConfig)
    sft: SftConfig = field(default_factory=SftConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)

    def check(self) -> None:
        super().check()
        if self.eval.benchmarks:
            raise ConfigError("eval.benchmarks", f"eval={self.eval.name} is a suite, which evaluate.py runs; take one")
        if self.eval.engine != "transformers":
            raise ConfigError("eval.engine", f"={self.eval.engine} belongs to evaluate.py; training uses transformers")
        if not self.stages or self.stages != [stage for stage in STAGES if stage in self.stages]:
            raise ConfigError("stages", f"must list some of {', '.join(STAGES)}, in this order, not {self.stages}")
        if self.model.dtype == "float16" and {"sft", "rl"} & set(self.stages):
            raise ConfigError(
                "model.dtype", "=float16 cannot learn, its gradients vanish: use bfloat16, or float32 with bf16=true"
            )
        if "rl" in self.stages:
            self._check_rl()
        if "eval" in self.stages and not self.eval.rows:
            self.check_length("eval.max_new_tokens", self.eval.max_new_tokens)
        if self.metric is not None:
            self._check_metric(self.metric)

    def _check_metric(self, metric: str) -> None:
        stage, slash, _ = metric.partition("/")
        evaluated = not slash and metric.partition(".")[0] in EVALUATED
        if slash and stage in ("sft", "rl") and stage in self.stages or metric == "seconds":
            return
        if not evaluated:
            raise ConfigError(
                "metric", f"is such as accuracy, by_kind.order.rl or rl/reward, of stages={self.stages}, not {metric!r}"
            )
        if "eval" not in self.stages:
            raise ConfigError(
                "metric", f"={metric} needs the stage eval, and stages={self.stages}; take one such as rl/reward"
            )

    def _check_rl(self) -> None:
        if self.rollout.temperature == 0:
            raise ConfigError("rollout.temperature", "must be above 0 in training: greedy completions are all the same")
        if not self.reward.components:
            raise ConfigError("reward.components", "is empty: the rl stage needs at least one reward")
        if self.trainer.packing and self.model.attn_implementation == "flash_attention_2":
            raise ConfigError(
                "model.attn_implementation",
                "=flash_attention_2 cannot read packed rows: use sdpa or flex_attention, or trainer.packing=false",
            )
        self.check_length("rollout.max_new_tokens", self.rollout.max_new_tokens)
        prompt, row = self.data.max_prompt_tokens, self.trainer.max_packed_tokens
        if prompt is not None and row is not None and prompt + self.rollout.max_new_tokens > row:
            raise ConfigError(
                "trainer.max_packed_tokens",
                f"={row} cannot hold data.max_prompt_tokens={prompt} and one completion of "
                f"rollout.max_new_tokens={self.rollout.max_new_tokens}",
            )


@dataclass
class EvaluateConfig(RunConfig):
    """`evaluate.py`: measures one checkpoint on a benchmark, a suite of them, or the rows of `data`.

    `compare` names two runs to compare row by row; `rescore` a run whose saved replies are parsed and scored again;
    `resume` a run folder to go on in, with the settings it began with. The first two need no model. `metric` names the
    figure that a search gets from a run, such as `videomme.accuracy`: null is the first of the only benchmark.

    Example::

        python evaluate.py model.path=outputs/toy/20260101-120000-ab12cd/checkpoints/rl
        python evaluate.py compare=[outputs/evaluate/RUN_A,outputs/evaluate/RUN_B]
    """

    eval: EvalConfig = field(default_factory=EvalConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    compare: list[str] = items()
    rescore: str | None = free_text()
    resume: str | None = free_text()
    metric: str | None = free_text()

    def check(self) -> None:
        if self.compare and len(self.compare) != 2:
            raise ConfigError("compare", f"takes two run folders, compare=[RUN_A,RUN_B], not {len(self.compare)}")
        if self.compare and self.rescore:
            raise ConfigError("compare", "cannot be set together with rescore; do one after the other")
        super().check()
        for name, member in self.eval.members.items():
            if member.engine != "replay" and not member.rows:
                key = f"eval.benchmarks.{name}" if self.eval.benchmarks else "eval"
                self.check_length(f"{key}.max_new_tokens", member.max_new_tokens)
        known = ("accuracy", "seconds", *self.eval.members)
        if self.metric is not None and self.metric.partition(".")[0] not in known:
            raise ConfigError("metric", f"begins with one of {', '.join(known)}, such as {known[-1]}.accuracy")

    def needs_model(self) -> bool:
        """A run that is resumed may have one in its saved settings."""
        engines = {member.engine for member in self.eval.members.values()}
        return not self.compare and not self.rescore and not self.resume and engines != {"replay"}

    def needs_rows(self) -> bool:
        asks = not self.compare and not self.rescore and not self.resume
        return asks and not all(member.rows for member in self.eval.members.values())


@dataclass
class PredictConfig(RunConfig):
    """`predict.py`: one question about one video, one image, or neither.

    `start` and `end` (seconds) cut the video; `tokens` also writes a page of coloured tokens, to `output` where set.

    Example::

        python predict.py model=qwen2_5_vl_7b data=video_r1 video=clip.mp4 question="What happens first?"
    """

    question: str = free_text("")
    video: str | None = free_text()
    image: str | None = free_text()
    start: float | None = number(None, ge=0)
    end: float | None = number(None, gt=0)
    options: list[str] = items()
    problem_type: str = ""
    max_new_tokens: int = number(1024, ge=1)
    temperature: float = number(0.0, ge=0)
    tokens: bool = False
    output: str | None = free_text()

    def needs_rows(self) -> bool:
        return False

    def check(self) -> None:
        super().check()
        if not self.question.strip():
            raise ConfigError("question", 'is required: predict.py question="What happens first?"')
        if not self.model.path:
            raise ConfigError("model.path", "is required: a checkpoint folder or a hub name")
        if self.problem_type:
            try:
                canonical_type(self.problem_type)
            except ValueError as error:
                raise ConfigError("problem_type", str(error)) from None
        if self.video and self.image:
            raise ConfigError("video", "cannot be set together with image; leave one of them out")
        if (self.start is not None or self.end is not None) and not self.video:
            raise ConfigError("start" if self.start is not None else "end", "cuts a video, so video must be set")
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise ConfigError("start", f"={self.start:g} is not before end={self.end:g}")
        self.check_length("max_new_tokens", self.max_new_tokens)
