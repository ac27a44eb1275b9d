#include "train/report/page_style.h"

namespace quench {
namespace {

constexpr std::string_view kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --text: #1b2330; --muted: #5f6b7c; --border: #dfe3ea; --grid: #e9ecf1;
  --s0: #2463d8; --s1: #e06a10; --s2: #16905a; --s3: #8a4fd0; --s4: #0f8b9e; --s5: #c2378b; --s6: #8a6d1f; --s7: #5b6472; --bad: #c92a2a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161d; --card: #1a2029; --text: #e4e8ee; --muted: #93a0b3; --border: #2c3542; --grid: #262e3a;
    --s0: #6ea0ff; --s1: #ff9a4d; --s2: #4fcf97; --s3: #bb8cf5; --s4: #4cc9dc; --s5: #f27fc4; --s6: #d9b85a; --s7: #a3adbb; --bad: #ff7b7b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif;
}
main { max-width: 1280px; margin: 0 auto; padding: 28px 24px 48px; }
header h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; }
header p { margin: 4px 0 0; color: var(--muted); }
dl.facts { margin: 10px 0 0; display: grid; grid-template-columns: max-content 1fr; gap: 2px 14px; font-size: 14px; }
dl.facts dt { color: var(--muted); }
dl.facts dd { margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
a { color: var(--s0); }
nav { margin-top: 10px; display: flex; flex-wrap: wrap; gap: 6px 18px; font-size: 14px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(185px, 1fr)); gap: 12px; margin-top: 22px; }
.card, figure, .panel { background: var(--card); border: 1px solid var(--border); border-radius: 10px; }
.card { padding: 12px 16px; }
.card .label { color: var(--muted); font-size: 13px; }
.card .value { font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap; }
.card .more { color: var(--muted); font-size: 12.5px; min-height: 1.5em; }
.card.bad .value { color: var(--bad); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 16px; }
figure { margin: 0; padding: 14px 16px 8px; position: relative; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { display: inline-block; }
figcaption .unit { color: var(--muted); font-size: 13px; margin-left: 4px; }
figure > input { position: absolute; right: 82px; top: 19px; margin: 0; accent-color: var(--s0); }
figure > label { position: absolute; right: 16px; top: 14px; color: var(--muted); font-size: 13px; cursor: pointer; }
figure > .log, figure > input:checked ~ .linear { display: none; }
figure > input:checked ~ .log { display: block; }
.legend { min-height: 20px; display: flex; flex-wrap: wrap; gap: 2px 16px; color: var(--muted); font-size: 13px; }
.legend .key {
  display: inline-block; width: 18px; height: 3px; border-radius: 2px; margin-right: 6px; vertical-align: middle;
  background: currentColor;
}
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); } .s3 { color: var(--s3); }
.s4 { color: var(--s4); } .s5 { color: var(--s5); } .s6 { color: var(--s6); } .s7 { color: var(--s7); }
.legend .key.block { width: 14px; height: 11px; }
.h0, .h1, .h2, .h3, .h4 { color: var(--s0); } .h5, .h6 { color: var(--s1); } .h7 { color: var(--bad); }
.h0 { opacity: 0.15; } .h1 { opacity: 0.3; } .h2 { opacity: 0.45; } .h3 { opacity: 0.65; } .h4 { opacity: 0.9; }
.h5 { opacity: 0.6; }
svg rect[class^="h"] { fill: currentColor; }
svg .grid { stroke: var(--grid); }
svg .axis { stroke: var(--muted); }
svg .tick { fill: var(--muted); font-size: 11px; }
svg .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg .line.faint { stroke-width: 1; opacity: 0.35; }
.legend .key.faint { opacity: 0.35; }
svg .line.dashed { stroke-dasharray: 5 4; }
svg .dot { fill: currentColor; stroke: var(--card); stroke-width: 1; }
svg .flag { stroke: var(--bad); stroke-width: 2; }
svg .mark { fill: none; stroke: var(--muted); stroke-width: 1; }
svg .mark.resume { stroke-dasharray: 2 3; }
svg .mark.checkpoint { fill: var(--card); stroke: var(--s0); stroke-width: 1.2; }
svg .mark.spike { fill: var(--bad); stroke: none; }
.legend .key.mark { background: none; }
.legend .key.mark.resume { width: 0; height: 12px; border-left: 1px dashed var(--muted); border-radius: 0; }
.legend .key.mark.checkpoint { width: 7px; height: 7px; border: 1.2px solid var(--s0); border-radius: 0; rotate: 45deg; }
.legend .key.mark.spike { width: 0; height: 0; border: 5px solid transparent; border-top: 8px solid var(--bad); border-bottom: 0; }
svg .spot rect { fill: transparent; }
svg .spot .guide, svg .spot .dot, svg .spot .readout { visibility: hidden; pointer-events: none; }
svg .spot:hover .guide, svg .spot:hover .dot, svg .spot:hover .readout { visibility: visible; }
svg .guide { stroke: var(--muted); stroke-dasharray: 3 3; }
svg .readout { fill: var(--text); font-size: 11.5px; white-space: pre; font-variant-numeric: tabular-nums; }
.panel { padding: 4px 16px 8px; overflow-x: auto; }
.panel + .panel { margin-top: 12px; }
.panels { columns: 360px; column-gap: 16px; }
.panels > .panel { margin: 0 0 16px; break-inside: avoid; }
.panel > summary { cursor: pointer; padding: 8px 0 4px; font-weight: 600; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--muted); font-weight: 500; }
th, td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
tr:last-child > * { border-bottom: none; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.key { color: var(--muted); white-space: nowrap; width: 1%; }
td.data { overflow-wrap: anywhere; font-family: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace;
  font-size: 13px; }
.sample { padding: 12px 16px; margin-bottom: 12px; }
.sample .where { color: var(--muted); font-size: 13px; }
.attached { overflow-x: auto; font-size: 12px; }
.sample p { margin: 4px 0 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.sample .prompt { font-weight: 600; }
.empty { color: var(--muted); padding: 18px 16px; }
footer { margin-top: 36px; color: var(--muted); font-size: 13px; }
footer li { overflow-wrap: anywhere; }
@media print { body { background: none; } figure, .card, .panel { break-inside: avoid; } }
)css";

}  // namespace

std::string_view page_style() noexcept {
  return kPageStyle;
}

}  // namespace quench
