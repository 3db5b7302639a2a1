"""Comparisons on a Ray cluster. Needs the extra `ray`.

Each task reads one file and compares policies on its traces; rows come back as a Ray dataset, and so can be written as
Parquet, or anything else that Ray writes. What a task needs travels by name or by pickle.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Optional, Union

import ray.data

from ._compare import compare as compare_here
from ._native import InvalidInput, ReadError, Trace, find_traces, read_traces
from ._types import AnyPolicy, Rules, StrPath, Summarizer

__all__ = ["compare"]


def compare(
    paths: Union[StrPath, Iterable[StrPath]],
    policies: Iterable[AnyPolicy],
    *,
    window: Union[int, Iterable[int]] = 32_000,
    reserve: int = 4_000,
    tokenizer: str = "o200k",
    profile: str = "reference",
    summarizer: Summarizer = "extractive",
    rules: Rules = "sound",
    recall: bool = True,
    seeds: int = 1,
    concurrency: Optional[int] = None,
) -> "ray.data.Dataset":
    """The rows of `condenser.compare`, worked out by the workers of a cluster: a dataset, `write_parquet` and all.

    `paths` are files (Parquet data sets of trajectories too), folders and patterns, which every worker must be able to
    read; each file is a task. Policies and summarizers written in Python must be picklable. Rows come in no fixed
    order. `concurrency` is how many tasks run at once.
    """
    windows = [window] if isinstance(window, int) else list(window)
    chosen = list(policies)
    # What is misspelt is said here, and not by each worker.
    compare_here([], chosen, window=windows, reserve=reserve, tokenizer=tokenizer, profile=profile,
                 summarizer=summarizer, rules=rules, recall=recall, seeds=seeds)  # fmt: skip

    def rows(batch: Any) -> Any:
        traces: list[Trace] = []
        for file in batch.to_pylist():
            try:
                traces.extend(read_traces(file["path"]))
            except ReadError:
                # What was only found in a folder may be something else.
                if file["named"]:
                    raise
        compared = compare_here(
            traces,
            chosen,
            window=windows,
            reserve=reserve,
            tokenizer=tokenizer,
            profile=profile,
            summarizer=summarizer,
            rules=rules,
            recall=recall,
            seeds=seeds,
            # The cluster has its own idea of how much runs at once.
            jobs=1,
        )
        return compared.to_arrow()

    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files = [{"path": os.fspath(path), "named": is_named} for path, is_named in find_traces(*named)]
    if not files:
        raise InvalidInput("there are no files to compare")
    dataset = ray.data.from_items(files, override_num_blocks=len(files))
    return dataset.map_batches(rows, batch_size=1, batch_format="pyarrow", concurrency=concurrency)
