"""What the entries share: quoting, Hydra, validation before anything is written, and errors in one line."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig

from ktr.config.compose import CONF_DIR, HYDRA_VERSION, SCHEMAS, register
from ktr.config.convert import free_text_keys
from ktr.config.fields import ConfigError
from ktr.config.help import FLAGS, help_text
from ktr.config.messages import one_line
from ktr.config.overrides import quote_overrides
from ktr.config.run_folder_name import FAILURE, RunBusyError, is_at_work, register_resolvers
from ktr.config.schemas import RunConfig
from ktr.config.validate import check_files, validate
from ktr.config.without_effect import without_effect
from ktr.reporting.files import write_atomic

ConfigT = TypeVar("ConfigT", bound=RunConfig)
OPTUNA = "hydra_optuna_sweeper"
logger = logging.getLogger(__name__)
CLUSTER = "cluster@hydra.launcher"  # As Hydra names the group where launchers include it.
TRACEBACK_WANTED = os.environ.get("HYDRA_FULL_ERROR") == "1"

register_resolvers()  # On import, so that the processes a launcher starts know them too.


class CheckBeforeRun(Callback):
    """Refuses a config before Hydra makes its run folder. Hydra swallows what callbacks raise, so this one exits."""

    def __init__(self, entry: str) -> None:
        self.schema = SCHEMAS[entry]

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        try:
            launcher = config.hydra.runtime.choices.get("hydra/launcher")
            if launcher not in (None, "local", "basic"):
                raise ConfigError("hydra/launcher", f"={launcher} starts sweeps: add -m (a sweep may have one job)")
            check_files(validate(config, self.schema))
        except Exception as error:  # The process boundary: reported, and the process ends.
            leave(error, self.schema)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """The launcher checks the jobs of a sweep, whose values are not known yet.

        A search is refused where its runs measure no accuracy and nothing says what else to judge them by.
        """
        if OPTUNA not in config.hydra.sweeper._target_ or config.get("metric") is not None:
            return
        if "eval" not in config.get("stages", ["eval"]) or config.eval.get("benchmarks"):
            leave(
                ConfigError("metric", "names the figure to search by, such as rl/reward or videomme.accuracy"),
                self.schema,
            )


def run_entry(entry: str, schema: type[ConfigT], task: Callable[[ConfigT, Path], Any]) -> None:
    """Compose the config of `entry` from the command line, validate it, and call `task(config, run_dir)`.

    What `task` returns goes to the sweeper of a `--multirun`. A run that fails says why in `failure.json` and its log.
    Errors a person can mend become one line on stderr; others keep their traceback, as all do with
    `HYDRA_FULL_ERROR=1`. Either way the process ends with a status that is not 0.
    """

    def job(config: DictConfig) -> Any:
        run_dir = Path(HydraConfig.get().runtime.output_dir)
        if not is_at_work(run_dir):
            (run_dir / FAILURE).unlink(missing_ok=True)
        try:
            typed = validate(config, schema)
            check_files(typed)
            for line in without_effect(typed, HydraConfig.get().overrides.task):
                logger.warning(line)
            return task(typed, run_dir)
        except Exception as error:  # The process boundary: reported, and the process ends.
            note_failure(error, schema, run_dir)
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            leave(error, schema)

    try:
        arguments = prepare_arguments(sys.argv[1:], schema)
        if any(flag in arguments for flag in FLAGS):
            text = help_text(entry, [argument for argument in arguments if not argument.startswith("-")])
            with suppress(BrokenPipeError):  # `--help | head` closes the pipe early.
                print(text, flush=True)
            return
        register(entry)
        sys.argv[1:] = arguments
        os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing a message of its own.
        hydra.main(version_base=HYDRA_VERSION, config_path=str(CONF_DIR), config_name=entry)(job)()
    except Exception as error:  # The process boundary: reported, and the process ends.
        leave(error, schema)


def prepare_arguments(arguments: Sequence[str], schema: type[RunConfig]) -> list[str]:
    """The command line as Hydra gets it: free-text values quoted, `trainer=sft` read as `stages=[sft]`,
    `hydra/sweeper=optuna` as `optuna_search` (a file of ours cannot have the name that the plugin's schema has), and
    `cluster=NAME` as the cluster of the launcher.

    Raises:
        ConfigError: for `trainer=sft` together with `trainer.` settings, which would change nothing.
    """
    quoted = quote_overrides(arguments, free_text_keys(schema))
    quoted = ["hydra/sweeper=optuna_search" if argument == "hydra/sweeper=optuna" else argument for argument in quoted]
    quoted = [_cluster(one, quoted) if one.startswith("cluster=") else one for one in quoted]
    if "trainer=sft" not in quoted:
        return quoted
    for argument in quoted:
        if argument.lstrip("+").startswith("trainer."):
            key = argument.lstrip("+").partition("=")[0]
            raise ConfigError(key, f"has no effect with trainer=sft; set {key.replace('trainer.', 'sft.', 1)}")
    return ["stages=[sft]" if argument == "trainer=sft" else argument for argument in quoted]


def _cluster(argument: str, arguments: Sequence[str]) -> str:
    """`cluster=NAME` as Hydra names it, which takes no notice of a name that is not there."""
    name = argument.partition("=")[2]
    if not any(one.startswith("hydra/launcher=slurm") for one in arguments):
        raise ConfigError("cluster", "belongs to the jobs of Slurm: give hydra/launcher=slurm_rl, or another slurm_*")
    known = sorted(path.stem for path in (CONF_DIR / "cluster").glob("*.yaml"))
    if name not in known:
        raise ConfigError(argument, f"no such choice; conf/cluster has {', '.join(known)}")
    return f"{CLUSTER}={name}"


def leave(error: BaseException, schema: type[RunConfig]) -> None:
    """Report `error` on stderr and end the process with status 1."""
    message = one_line(error, schema)
    if message is None or TRACEBACK_WANTED:
        traceback.print_exception(error)
    if message is not None:
        print(f"error: {message}", file=sys.stderr)
    sys.exit(1)


def note_failure(error: BaseException, schema: type[RunConfig], run_dir: Path) -> None:
    """Write why a run failed into its folder: one line into `failure.json`, all into the log that the console has.

    Another run's folder, where that run is still at work, is left alone.
    """
    if isinstance(error, RunBusyError):
        return
    message = one_line(error, schema)
    trace = "".join(traceback.format_exception(error))
    record = logging.LogRecord("ktr", logging.ERROR, __file__, 0, message or trace, None, None)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)
    line = message or traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
    with suppress(OSError):  # A full disk may be what the run failed of; the console is told all the same.
        write_atomic(run_dir / FAILURE, json.dumps({"error": line}, ensure_ascii=False) + "\n")
