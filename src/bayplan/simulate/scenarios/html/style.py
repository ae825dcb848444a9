"""The style sheet of the report. There is no other: attributes named `style` are forbidden by its policy."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --text: #1c2126; --muted: #59636e; --page: #ffffff; --panel: #f5f7f9; --edge: #d5dbe1; --bar: #2463a8;
  --c0: #1f5fa8; --c1: #b3541e; --c2: #1d7a4c; --c3: #8a3fa0; --c4: #a52a4a; --c5: #6b6300; --c6: #00747d;
  --c7: #59636e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6e9ec; --muted: #a3adb7; --page: #14181c; --panel: #1d2329; --edge: #3a434c; --bar: #5b9be0;
    --c0: #6db1ff; --c1: #f0995c; --c2: #5fcf95; --c3: #d29ae8; --c4: #f08aa3; --c5: #d8cc4a; --c6: #58d0da;
    --c7: #a3adb7;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.6rem; margin: 0.5rem 0 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
p { margin: 0.4rem 0; }
.muted, figcaption { color: var(--muted); font-size: 0.9rem; }
.cards {
  display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 0.6rem; margin: 0;
}
.cards div {
  background: var(--panel); border: 1px solid var(--edge); border-radius: 6px; padding: 0.5rem 0.7rem;
}
.cards dt { color: var(--muted); font-size: 0.85rem; }
.cards dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { margin: 0.5rem 0; }
svg.chart { width: 100%; height: auto; display: block; }
svg.narrow { display: none; }
svg text { fill: var(--muted); font-size: 12px; }
.grid { stroke: var(--edge); stroke-width: 1; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.bar { fill: var(--bar); }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.c2 { stroke: var(--c2); stroke-dasharray: 2 3; } .c3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.c4 { stroke: var(--c4); } .c5 { stroke: var(--c5); stroke-dasharray: 7 3; }
.c6 { stroke: var(--c6); stroke-dasharray: 2 3; } .c7 { stroke: var(--c7); stroke-dasharray: 9 3 2 3; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 0.2rem 1rem; margin: 0.2rem 0; padding: 0; }
.legend li { font-size: 0.9rem; display: flex; align-items: center; gap: 0.4rem; }
svg.key { width: 24px; height: 8px; flex: none; }
.scroll { overflow-x: auto; max-height: 26rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; width: 100%; }
caption { text-align: left; color: var(--muted); }
th, td {
  padding: 0.25rem 0.6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--edge);
}
th:first-child { text-align: left; white-space: normal; min-width: 9rem; overflow-wrap: break-word; }
tbody th { font-weight: normal; }
summary { cursor: pointer; color: var(--muted); font-size: 0.9rem; }
@media (max-width: 40rem) {
  svg.wide { display: none; }
  svg.narrow { display: block; }
}
@media print { details { display: none; } }
"""

STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
