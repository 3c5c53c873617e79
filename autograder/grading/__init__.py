"""From a notebook to points: rebuild, run, judge, store."""
