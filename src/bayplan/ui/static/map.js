// Every node a cell, on a canvas. Only what is visible is painted, into pixels: 50,000 nodes cost what 5,000 do.

import { announce, counted, h, number } from "./dom.js";

/**
 * @typedef {{name: string, rows: number[]}} Group
 * `tones` are the variables of colours, `tone` says which of them a row has.
 * @typedef {{groups: Group[], tones: string[], tone: (row: number) => number, label: (row: number) => string,
 *   selected: number, marked: Set<number>, open: (row: number) => void}} Picture
 */

const HEAD = 22, GAP = 16;

/** The variables that name the colours, resolved. @type {Map<string, number>} */
const resolved = new Map();

/** @param {string} variable */
function pixel(variable) {
  let found = resolved.get(variable);
  if (found === undefined) {
    const text = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    const value = parseInt(text.slice(1).length === 3 ? [...text.slice(1)].map(c => c + c).join("") : text.slice(1), 16);
    found = (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
    resolved.set(variable, found);
  }
  return found;
}
/** @type {Map<string, string>} */
const texts = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { resolved.clear(); texts.clear(); });

/** The value of a variable. It is computed once: asking in every frame would cost more than painting. @param {string} variable */
function css(variable) {
  let found = texts.get(variable);
  if (found === undefined) texts.set(variable, found = getComputedStyle(document.documentElement).getPropertyValue(variable).trim());
  return found;
}

export class NodeMap {
  constructor() {
    this.canvas = h("canvas", { tabIndex: 0, role: "application", "aria-roledescription": "map of nodes" });
    this.spacer = h("div", { class: "tall" });
    this.box = h("div", { class: "mapbox" }, this.spacer, this.canvas);
    this.tip = h("div", { class: "tip", hidden: true });
    /** @type {Picture | null} */ this.picture = null;
    this.size = 9;
    this.chosen = 0;
    this.cursor = -1;
    /** @type {{name: string, top: number, rows: number[]}[]} */ this.layout = [];
    this.columns = 1;
    this.frame = 0;
    /** @type {ImageData | null} */ this.image = null;
    this.isFirst = true;
    this.box.addEventListener("scroll", () => this.paintSoon(), { passive: true });
    this.canvas.addEventListener("mousemove", (/** @type {MouseEvent} */ event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      const found = this.at(event.offsetX, event.offsetY);
      if (found >= 0) this.picture?.open(found);
    });
    this.canvas.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.key(event));
    this.canvas.addEventListener("blur", () => { this.cursor = -1; this.paintSoon(); });
    this.watcher = new ResizeObserver(() => this.arrange());
    this.watcher.observe(this.box);
    document.body.append(this.tip);
  }

  close() {
    this.watcher.disconnect();
    cancelAnimationFrame(this.frame);
    this.tip.remove();
  }

  /** @param {Picture} picture */
  show(picture) {
    const same = this.picture && this.picture.groups === picture.groups;
    this.picture = picture;
    const count = picture.groups.reduce((sum, group) => sum + group.rows.length, 0);
    this.canvas.setAttribute("aria-label", `${counted(count, "node")} in ${counted(picture.groups.length, "group")}. Arrow keys move, Enter opens a node.`);
    if (same) this.paintSoon();
    else this.arrange();
  }

  /** The size of a cell. @param {number} chosen 0: so large that all nodes fit */
  fit(chosen) {
    if (chosen === this.chosen) return;
    this.chosen = chosen;
    this.arrange();
  }

  arrange() {
    const picture = this.picture;
    const width = this.box.clientWidth - parseInt(getComputedStyle(this.box).paddingRight || "0", 10), height = this.box.clientHeight;
    if (!picture || width <= 0) return;
    this.size = this.chosen || this.bestSize(picture.groups, width, height);
    const pitch = this.size + this.gap;
    this.columns = Math.max(1, Math.floor((width + this.gap) / pitch));
    this.layout = [];
    let top = 0;
    for (const group of picture.groups) {
      this.layout.push({ name: group.name, top, rows: group.rows });
      top += HEAD + Math.ceil(group.rows.length / this.columns) * pitch + GAP;
    }
    this.height = Math.max(top - GAP, 1);
    this.spacer.style.height = `${this.height}px`;
    const ratio = devicePixelRatio || 1;
    const tall = Math.min(height, this.height);
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(tall * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(tall * ratio);
      this.canvas.style.width = `${width}px`;
      this.canvas.style.height = `${tall}px`;
    }
    this.width = width;
    this.paint();
  }

  get gap() {
    return this.size > 5 ? 1 : this.size > 2 ? 1 : 0;
  }

  /** @param {Group[]} groups @param {number} width @param {number} height */
  bestSize(groups, width, height) {
    for (let size = 28; size > 3; size--) {
      const columns = Math.floor((width + 1) / (size + 1));
      const needed = groups.reduce((sum, group) => sum + HEAD + GAP + Math.ceil(group.rows.length / columns) * (size + 1), 0);
      if (needed <= height) return size;
    }
    return 3;
  }

  paintSoon() {
    this.frame ||= requestAnimationFrame(() => { this.frame = 0; this.paint(); });
  }

  paint() {
    const picture = this.picture;
    if (!picture || !this.canvas.width) return;
    const began = performance.now();
    const context = this.canvas.getContext("2d"), ratio = devicePixelRatio || 1;
    const { width, height } = this.canvas;
    const scroll = this.box.scrollTop, pitch = this.size + this.gap;
    /** @type {ImageData} */
    const image = this.image && this.image.width === width && this.image.height === height ? this.image : context.createImageData(width, height);
    this.image = image;
    const pixels = new Uint32Array(image.data.buffer), palette = Uint32Array.from(picture.tones, pixel);
    pixels.fill(pixel("--bg"));
    const side = Math.max(1, Math.round(this.size * ratio));
    /** @type {[number, number, string, string][]} */ const titles = [];
    /** @type {[number, number, boolean][]} */ const boxes = [];
    for (const group of this.layout) {
      const y0 = group.top + HEAD - scroll, lines = Math.ceil(group.rows.length / this.columns);
      if (y0 + lines * pitch < 0 || group.top - scroll > height / ratio) continue;
      titles.push([group.top - scroll + 14, 0, group.name, counted(group.rows.length, "node")]);
      const first = Math.max(0, Math.floor(-y0 / pitch)), last = Math.min(lines, Math.ceil((height / ratio - y0) / pitch));
      for (let line = first; line < last; line++) {
        const top = Math.round((y0 + line * pitch) * ratio);
        const from = Math.max(0, top), to = Math.min(height, top + side), start = from * width;
        if (to <= from) continue;
        const end = Math.min(this.columns, group.rows.length - line * this.columns);
        for (let column = 0; column < end; column++) {
          const row = group.rows[line * this.columns + column], left = Math.round(column * pitch * ratio), right = Math.min(width, left + side);
          const colour = palette[picture.tone(row)];
          for (let x = left; x < right; x++) pixels[start + x] = colour;
          if (row === picture.selected || row === this.cursor || (picture.marked.size && picture.marked.has(row))) boxes.push([column * pitch, y0 + line * pitch, row === this.cursor]);
        }
        // The other rows of pixels of these cells are the same.
        for (let y = from + 1; y < to; y++) pixels.copyWithin(y * width, start, start + width);
      }
    }
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = css("--dim");
    for (const [y, x, name, count] of titles) {
      context.textAlign = "left";
      context.fillText(name, x, y);
      context.textAlign = "right";
      context.fillText(count, this.width, y);
    }
    for (const [x, y, isCursor] of boxes) {
      context.strokeStyle = css(isCursor ? "--ink" : "--sel");
      context.lineWidth = 2;
      context.strokeRect(x - 0.5, y - 0.5, Math.max(this.size + 1, 4), Math.max(this.size + 1, 4));
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (this.isFirst) performance.measure("map-paint", { start: began }); // one: the browser keeps them all
    this.isFirst = false;
  }

  /** The row at a point of the canvas; -1: none. @param {number} x @param {number} y */
  at(x, y) {
    const pitch = this.size + this.gap, line = y + this.box.scrollTop;
    for (const group of this.layout) {
      const top = line - group.top - HEAD;
      if (top < 0) continue;
      const index = Math.floor(top / pitch) * this.columns + Math.floor(x / pitch);
      if (Math.floor(x / pitch) < this.columns && index < group.rows.length && top < Math.ceil(group.rows.length / this.columns) * pitch) return group.rows[index];
    }
    return -1;
  }

  /** @param {MouseEvent} event */
  hover(event) {
    const found = this.at(event.offsetX, event.offsetY);
    this.tip.hidden = found < 0;
    if (found < 0) return;
    this.tip.textContent = this.picture?.label(found) ?? "";
    this.tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 240)}px`;
    this.tip.style.top = `${Math.min(event.clientY + 14, innerHeight - 80)}px`;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const picture = this.picture;
    const moves = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns });
    if (!picture) return;
    if (event.key === "Enter" && this.cursor >= 0) {
      picture.open(this.cursor);
    } else if (event.key in moves) {
      event.preventDefault();
      const order = this.layout.flatMap(group => group.rows);
      const before = order.indexOf(this.cursor);
      const now = before < 0 ? Math.max(0, order.indexOf(picture.selected)) : Math.max(0, Math.min(order.length - 1, before + moves[event.key]));
      this.cursor = order[now];
      announce(picture.label(this.cursor));
      this.reveal(this.cursor);
      this.paintSoon();
    }
  }

  /** Scrolls a row into view. @param {number} row */
  reveal(row) {
    const pitch = this.size + this.gap;
    for (const group of this.layout) {
      const index = group.rows.indexOf(row);
      if (index < 0) continue;
      const y = group.top + HEAD + Math.floor(index / this.columns) * pitch;
      if (y < this.box.scrollTop || y + pitch > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = y - this.box.clientHeight / 2;
    }
  }
}

/** A table of the groups for screen readers. @param {Group[]} groups @param {(row: number) => number | null} share */
export const summary = (groups, share) => h("table", { class: "hidden" }, h("caption", {}, "Groups of nodes"),
  h("tbody", {}, groups.slice(0, 200).map(group => {
    const shares = group.rows.map(share).filter(one => one !== null);
    const mean = shares.length ? shares.reduce((a, b) => Number(a) + Number(b), 0) / shares.length : null;
    return h("tr", {}, h("th", { scope: "row" }, group.name), h("td", {}, `${number(group.rows.length)} nodes`), mean === null ? null : h("td", {}, `${Math.round(mean * 100)} % on average`));
  })));
