# %% [markdown]
# # Policies side by side, as data frames
#
# Open it in a notebook, or run it: `python examples/frames.py`. It needs `polars` and `pyarrow`.

# %%
from pathlib import Path

import polars

import condenser

TRACES = Path(__file__).resolve().parents[3] / "fixtures" / "traces"

# %% [markdown]
# A row for each trace, window and policy.

# %%
POLICIES = ["none", "observation-masking", "llm-summarizing", "random-masking"]
comparison = condenser.compare(TRACES, POLICIES, window=[4_000, 8_000, 32_000], tokenizer="chars/4")
rows = comparison.to_polars()

# %% [markdown]
# What each policy costs, and what share of the evidence it left in view.

# %%
summary = (
    rows.group_by("window", "policy", maintain_order=True)
    .agg(
        polars.col("cost_usd").sum().round(3),
        polars.col("peak_tokens").max(),
        (polars.col("evidence_in_view").sum() / polars.col("evidence_total").sum()).round(2).alias("in view"),
    )
    .sort("window", "cost_usd")
)
with polars.Config(tbl_rows=-1):
    print(summary)

# %% [markdown]
# The same rows as an Arrow table, for whatever reads Arrow.

# %%
table = comparison.to_arrow()
print(table.num_rows, "rows,", table.num_columns, "columns")
