"""What a freshly installed wheel has to do, without any other package."""

from pathlib import Path

import condenser

traces = Path(__file__).resolve().parents[3] / "fixtures" / "traces"
comparison = condenser.compare(traces, ["none", "observation-masking"], window=8_000, tokenizer="chars/4")
assert len(comparison) % 2 == 0 and {row["policy"] for row in comparison} == {"none", "observation-masking"}
assert "observation-masking" in comparison.table()
print(f"condenser {condenser.__version__}: {len(comparison)} rows")
