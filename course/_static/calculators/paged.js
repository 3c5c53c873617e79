/* Block tables with owners, forks and copy on write: efflib/serving/blocks.py and paged.py.

   position p is row  p % size  of block  table[floor(p / size)]

   A free block waits in a queue, the one that has been free longest is handed out next. A fork
   copies the table and not the blocks. Who writes into a block with several owners first takes one
   of its own: `append` returns the pair [from, to] to copy before anything is written. */
"use strict";
globalThis.calc ??= {};
calc.Fault ??= class extends Error {};

calc.Paged = class {
  constructor(blocks, size) {
    this.size = size;
    this.counts = Array(blocks).fill(0); // owners of each block
    this.queue = [...this.counts.keys()]; // free blocks, longest free first
    this.tables = new Map();
    this.lengths = new Map();
  }

  take() {
    const block = this.queue.shift();
    this.counts[block] = 1;
    return block;
  }

  release(block) {
    this.counts[block] -= 1;
    if (!this.counts[block]) this.queue.push(block);
  }

  known(name) {
    if (!this.tables.has(name)) throw new calc.Fault(`there is no sequence ${name}`);
    return this.tables.get(name);
  }

  /* Whether the next token goes into a block that has other owners, too. */
  writesIntoShared(name) {
    const partly = (this.lengths.get(name) ?? 0) % this.size > 0;
    return partly && this.counts[this.tables.get(name).at(-1)] > 1;
  }

  /* Room for so many more tokens; the blocks to copy, [from, to] or null. Needs all or does none. */
  append(name, tokens) {
    const length = this.lengths.get(name) ?? 0;
    const wanted = Math.ceil((length + tokens) / this.size);
    const shared = tokens > 0 && this.writesIntoShared(name);
    const missing = wanted - (this.tables.get(name) ?? []).length + shared;
    if (missing > this.queue.length) {
      throw new calc.Fault(`blocks needed: ${missing}, free: ${this.queue.length}`);
    }
    if (!this.tables.has(name)) this.tables.set(name, []);
    const table = this.tables.get(name);
    let copy = null;
    if (shared) {
      copy = [table.at(-1), this.take()];
      this.release(copy[0]);
      table[table.length - 1] = copy[1];
    }
    while (table.length < wanted) table.push(this.take());
    this.lengths.set(name, length + tokens);
    return copy;
  }

  fork(name, child) {
    const table = this.known(name);
    if (this.tables.has(child)) throw new calc.Fault(`there is a sequence ${child} already`);
    for (const block of table) this.counts[block] += 1;
    this.tables.set(child, [...table]);
    this.lengths.set(child, this.lengths.get(name));
  }

  /* The sequence ends: its blocks are released, last one first. */
  free(name) {
    for (const block of [...this.known(name)].reverse()) this.release(block);
    this.tables.delete(name);
    this.lengths.delete(name);
  }
};
