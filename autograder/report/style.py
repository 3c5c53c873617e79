"""Layout of the report, in light and dark."""

from autograder.nbgrader.colours import DARK, LIGHT, variables

CSS = (
    f":root{{color-scheme:light dark;{variables(LIGHT)}}}\n"
    f"@media (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}\n"
    """\
body { font: 16px/1.5 sans-serif; color: var(--text); background: var(--page); margin: 0 auto;
  max-width: 76rem; padding: 1rem 1.25rem 4rem }
h1 { font-size: 1.5rem; margin: .5rem 0 }
h2 { font-size: 1.2rem; border-bottom: 1px solid var(--line); margin: 2.5rem 0 .75rem }
p { max-width: 50rem }
a { color: var(--link) }
nav a { margin-right: 1rem }
.quiet { color: var(--quiet) }
.warn { color: var(--warn) }
.tiles { display: flex; flex-wrap: wrap; gap: .5rem; padding: 0; list-style: none }
.tiles li { background: var(--panel); padding: .4rem .9rem; min-width: 6rem }
.tiles b { display: block; font-size: 1.3rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th { text-align: left; font-weight: 600; vertical-align: bottom }
.wide { overflow-x: auto }
.list td, .list th { padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top }
.list .n { text-align: right }
.list td.n { white-space: nowrap }
.list td { overflow-wrap: break-word }
.list .name { min-width: 12rem; overflow-wrap: anywhere }
.share { display: block; width: 3.5rem; height: .5rem; margin-top: .5rem;
  background: var(--passed) }
.share i { display: block; height: 100%; background: var(--bar) }
svg { display: block; width: 100%; max-width: 44rem; height: auto }
svg rect { fill: var(--bar) }
svg text { fill: var(--text); font-size: 12px }
svg line { stroke: var(--line) }
.heat { table-layout: fixed; width: 100%; font-size: 11px; line-height: 1 }
.heat thead { position: sticky; top: 0; background: var(--page) }
.heat th { font-weight: normal; text-align: center; padding: 2px 0; overflow: hidden }
.heat thead a { text-decoration: none }
.heat.narrow thead th { overflow: visible; white-space: nowrap }
.heat.narrow thead a { display: block; width: 0; margin: 0 auto }
.heat .group { border-left: 2px solid var(--text); padding-left: 2px; text-align: left }
.heat tbody th { text-align: right; padding: 0 4px 0 0; white-space: nowrap;
  text-overflow: ellipsis; vertical-align: middle }
.heat col.who { width: 3.5rem }
.heat.named col.who { width: 11rem }
.heat col.sum { width: 2.75rem }
.heat td { padding: 0; height: 15px; border: 1px solid var(--page); background: var(--passed) }
.heat.many td { height: 11px; border-width: 0 1px }
.heat.many tbody th, .heat.many td.s { font-size: 10px }
.heat td.s { background: none; text-align: right }
td.f, .key .f { background: var(--failed) !important }
td.o, .key .o {
  background: repeating-linear-gradient(135deg, var(--open) 0 2px, var(--page) 2px 4px) !important }
td.v, .key .v { background: var(--page) !important; outline: 1px solid var(--open);
  outline-offset: -2px }
details { margin: 1rem 0 }
summary { cursor: pointer }
.key span { display: inline-block; width: 1rem; height: .8rem; margin: 0 .3rem 0 1rem;
  background: var(--passed) }
@media (min-width: 41rem) { .wide:has(.heat) { overflow: visible } }
@media (max-width: 40.99rem) {
  body { padding: .5rem .8rem 3rem }
  .heat, .heat.named { min-width: calc(var(--least) + 6.25rem) }
  .heat.named col.who { width: 5.5rem }
  .heat thead { position: static }
  .heat tbody th { position: sticky; left: 0; background: var(--page) }
  .items thead { display: none }
  .items tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .5rem 0;
    border-bottom: 1px solid var(--line) }
  .items td { border: 0; padding: 0 }
  .items .name { flex: 1 1 80% }
  .items [data-of]::before { content: attr(data-of) " "; color: var(--quiet) }
}
@media print { .heat thead { position: static } }
"""
)
