"""Cost of one policy update: packed groups against repeated prompts, ours and TRL's own methods.

All variants score and update on the same tensors in one process; nothing is sampled. `plain_*` gives every completion
a row with the prompt and its video repeated, `packed_*` packs a group into one row, `trl_grpo` runs TRL's
`_get_per_token_logps_and_entropies` and `_compute_loss` on image prompts of the same number of tokens (TRL reads no
video). `*_grpo` is plain GRPO with a KL term, `*_ktr` adds the three key-token signals.

    python benchmarks/step.py --prompt-frames 16 --grid 12 --completion 96 --group 8 --json step.json

FLOPs are counted by torch's FlopCounterMode, with the CPU's attention kernel, which it leaves out by itself; seconds
are medians over interleaved repeats, peak memory is the largest sum of live tensor storages during a step beyond what
was live before it.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from ktr.attribution.settings import KeyTokenSettings
from ktr.data.media import Frames, FrameSampling
from ktr.data.prompts import PromptTemplate
from ktr.data.rows import Media, Row
from ktr.models.encoded_prompt import EncodedPrompt
from ktr.models.loading import LoadedModel, load_model
from ktr.models.prompt_encoder import PromptEncoder
from ktr.models.toy_model import ToySize, build_toy_checkpoint
from ktr.training.key_tokens import KeyTokenAttributor
from ktr.training.objective import policy_loss
from ktr.training.objective_settings import ObjectiveSettings
from ktr.training.scoring import GroupScorer, ScoringGroup, valid_tokens

BETA = 0.04
CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: sdpa_backward_flop_count(
        *shapes[:4]
    ),
}


class PeakMemory(TorchDispatchMode):
    """Peak of the bytes held by tensor storages that were made inside the block."""

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if torch.is_tensor(leaf)}
        for leaf in tree_leaves(result):
            if torch.is_tensor(leaf):
                self._track(leaf.untyped_storage(), inputs)
        return result

    def _track(self, storage: torch.UntypedStorage, inputs: set[int]) -> None:
        key = storage._cdata
        if key in self._seen or key in inputs:
            return
        size = storage.nbytes()
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size


class Bench:
    """The model, its reference, one prompt and one group of completions, shared by all variants."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        size = ToySize(
            hidden_size=arguments.hidden,
            intermediate_size=3 * arguments.hidden,
            num_layers=arguments.layers,
            num_kv_heads=2,
            vision_hidden_size=arguments.vision_hidden,
            vision_intermediate_size=2 * arguments.vision_hidden,
            vision_depth=arguments.vision_layers,
        )
        self.path = build_toy_checkpoint(folder / "model", size=size, max_pixels=10**7, max_length=16384)
        self.loaded: LoadedModel = load_model(self.path, freeze_vision=arguments.freeze_vision)
        self.reference = copy.deepcopy(self.loaded.model).requires_grad_(False)
        add_fused_lm_head(self.loaded.model, outputs=("log_probs", "entropy"))
        add_fused_lm_head(self.reference)
        for parameter in self.reference.parameters():
            parameter.data += 1e-3 * torch.randn_like(parameter)
        self.encoder = PromptEncoder(
            self.loaded.processor, self.loaded.family, PromptTemplate("bench", "{question}"), FrameSampling(nframes=2)
        )
        self.prompt = self._prompt("video")
        generator = torch.Generator().manual_seed(1)
        lengths = [arguments.completion] * arguments.group
        self.completions = tuple(
            tuple(torch.randint(10, 200, (length,), generator=generator).tolist()) for length in lengths
        )
        self.advantages = torch.linspace(-1, 1, arguments.group)
        self.objective = ObjectiveSettings(beta=BETA)

    def _prompt(self, kind: str) -> EncodedPrompt:
        """Random frames of `grid` x `grid` patches; an image of the same number of patches for TRL."""
        grid, frames = self.arguments.grid, self.arguments.prompt_frames
        patch = self.loaded.family.patch_size
        count, rows, columns = (frames, grid, grid) if kind == "video" else (1, grid, grid * frames // 2)
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(
            0, 256, (count, 3, rows * patch, columns * patch), dtype=torch.uint8, generator=generator
        )
        question = " ".join(["which color came first ?"] * (self.arguments.prompt_words // 5))
        row = Row("bench", question, Media(kind, "bench"), "free-form", (), "red")
        times = tuple(i / 2 for i in range(count))
        return self.encoder.encode_frames(
            row,
            Frames(
                pixels, tuple(range(count)), times, 1.0, "bench", kind, tuple(pixels.shape[2:]), None, count, 2.0,
                "made", False, False,
            ),
        )  # fmt: skip

    def ours(self, *, packing: bool, key_tokens: KeyTokenSettings) -> Callable[[], float]:
        """One step of our scoring, attribution and objective; returns the loss."""
        model = self.loaded.model
        scorer = GroupScorer(self.loaded.family, pad_token_id=0, max_packed_tokens=10**6, packing=packing)
        attributor = KeyTokenAttributor(scorer, self.encoder, key_tokens, seed=0)
        groups = [ScoringGroup(self.prompt, self.completions)]
        valid = valid_tokens(groups)

        def step() -> float:
            model.zero_grad()
            with torch.no_grad():
                reference = scorer.score(self.reference, groups).logps_NC
            full = scorer.score(model, groups, capture_vision=bool(key_tokens.signals) and packing)
            found = attributor.attribute(model, groups, full, valid, step=0)
            weights = torch.cat([attribution.weights.weights_GC for attribution in found])
            output = policy_loss(full.logps_NC, None, reference, self.advantages, valid, weights, self.objective)
            output.loss.backward()
            return float(output.loss.detach())

        return step

    def trl(self, folder: Path) -> Callable[[], float]:
        """The same update by TRL's own trainer methods, on an image of the same number of tokens."""
        trainer = GRPOTrainer(
            model=load_model(self.path, freeze_vision=self.arguments.freeze_vision).model,
            reward_funcs=[lambda completions, **columns: [0.0] * len(completions)],
            args=GRPOConfig(
                str(folder / "trl"), per_device_train_batch_size=self.arguments.group, use_cpu=True, report_to=[],
                num_generations=self.arguments.group, beta=BETA, loss_type="grpo", gradient_checkpointing=False,
                bf16=False, seed=0,
            ),
            train_dataset=Dataset.from_list([{"prompt": "a"}] * self.arguments.group),
            processing_class=self.loaded.processor,
        )  # fmt: skip
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = 1
        prompt, group = self._prompt("image"), self.arguments.group
        completion_ids = torch.tensor(self.completions)
        token_types = torch.cat([prompt.visual_mask_P.long(), torch.zeros(completion_ids.shape[1], dtype=torch.long)])
        vision = {name: value.repeat(group, 1) for name, value in self.encoder.family.forward_inputs([prompt]).items()}
        inputs = {
            "prompt_ids": prompt.input_ids_P.expand(group, -1),
            "prompt_mask": torch.ones(group, len(prompt), dtype=torch.long),
            "completion_ids": completion_ids,
            "completion_mask": torch.ones_like(completion_ids),
            "advantages": self.advantages,
            "mm_token_type_ids": token_types.expand(group, -1),
            "num_images": [1] * group,
            **vision,
        }

        def step() -> float:
            trainer.model.zero_grad()
            with torch.no_grad():
                inputs["ref_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
                    trainer.ref_model,
                    torch.cat([inputs["prompt_ids"], completion_ids], dim=1),
                    torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
                    completion_ids.shape[1],
                    mm_token_type_ids=inputs["mm_token_type_ids"],
                    num_images=inputs["num_images"],
                    **vision,
                )
            loss = trainer._compute_loss(trainer.model, inputs)
            loss.backward()
            return float(loss.detach())

        return step


def measure(steps: dict[str, Callable[[], float]], repeats: int) -> dict[str, dict[str, float]]:
    """GFLOP, median seconds and peak megabytes of each step; repeats are interleaved, after one warm-up each."""
    results: dict[str, dict[str, float]] = {}
    for name, step in steps.items():
        step()
        counter = FlopCounterMode(display=False, custom_mapping=CPU_ATTENTION)
        with counter:
            step()
        with PeakMemory() as memory:
            step()
        results[name] = {"gflops": counter.get_total_flops() / 1e9, "peak_mb": memory.peak / 2**20}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    for name, taken in seconds.items():
        results[name]["seconds"] = statistics.median(taken)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt-frames", type=int, default=16, help="frames of the prompt's video")
    parser.add_argument("--grid", type=int, default=12, help="patches along one side of a frame")
    parser.add_argument("--prompt-words", type=int, default=35, help="words of the question")
    parser.add_argument("--completion", type=int, default=96, help="tokens of a completion")
    parser.add_argument("--group", type=int, default=8, help="completions of a group")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vision-hidden", type=int, default=128)
    parser.add_argument("--vision-layers", type=int, default=4)
    parser.add_argument("--freeze-vision", action="store_true", help="the vision tower does not learn")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()

    fast = KeyTokenSettings(blind="drop_tokens", granularity="patch")
    paper = KeyTokenSettings(blind="zero_features", granularity="frame")
    none = KeyTokenSettings(signals=())
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments, Path(folder))
        steps = {
            "plain_grpo": bench.ours(packing=False, key_tokens=none),
            "plain_ktr": bench.ours(packing=False, key_tokens=fast),
            "packed_grpo": bench.ours(packing=True, key_tokens=none),
            "packed_ktr": bench.ours(packing=True, key_tokens=fast),
            "packed_ktr_paper": bench.ours(packing=True, key_tokens=paper),
            "trl_grpo": bench.trl(Path(folder)),
        }
        results = measure(steps, arguments.repeats)
    base = results["plain_grpo"]
    table = Table(
        title=f"{len(bench.prompt)} prompt tokens, {arguments.group} x {arguments.completion} completion tokens"
    )
    for column in ("variant", "GFLOP", "of plain", "seconds", "of plain", "peak MB", "of plain"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, found in results.items():
        cells = [
            f(found, key)
            for key in ("gflops", "seconds", "peak_mb")
            for f in (_value, lambda r, k: f"{r[k] / base[k]:.2f}")
        ]
        table.add_row(name, *cells)
    Console().print(table)
    parameters = sum(p.numel() for p in bench.loaded.model.parameters())
    Console().print(f"model of {parameters / 1e6:.1f} M parameters, {torch.get_num_threads()} threads, float32")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def _value(result: dict[str, float], key: str) -> str:
    return f"{result[key]:.2f}" if key == "seconds" else f"{result[key]:.1f}"


if __name__ == "__main__":
    main()
