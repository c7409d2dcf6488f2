// A long list in the window: only what is near the screen is in the page. Heights are guessed first and measured later, and
// what is on the screen stays where it is when something above it turns out higher or lower.

const MARGIN = 1000; // pixels above and below the screen

/**
 * A list of elements in `box`, empty at first. `guess(index)` is a height in pixels, `render(index)` makes an element,
 * `shown(first, last)` is called when the range on the screen has changed, `top()` is the height of what covers the window's top,
 * `chosen()` is the index of the selected element, `atEnd()` is true while the list's end stays on the screen whatever changes.
 */
export class VirtualList {
  constructor({ box, guess, render, shown, top, chosen, atEnd = () => false }) {
    Object.assign(this, { box, guess, render, shown, top, chosen, atEnd });
    this.heights = [];
    this.measured = [];
    this.offsets = [0];
    this.elements = new Map();
    this.sizes = new ResizeObserver((entries) => this.resized(entries));
    this.waiting = false;
    this.count = 0;
    this.listen = () => this.soon();
    addEventListener("scroll", this.listen, { passive: true });
    addEventListener("resize", this.listen);
  }

  setCount(count) {
    for (let index = this.heights.length; index < count; index++) {
      this.heights.push(this.guess(index));
      this.measured.push(false);
    }
    if (count < this.heights.length) {
      this.heights.length = this.measured.length = count;
      for (const index of [...this.elements.keys()]) if (index >= count) this.drop(index);
    }
    this.count = count;
    this.changedFrom(0);
    this.update();
  }

  /** Guess heights again, for elements that were never in the page. */
  guessAgain() {
    const before = this.anchor();
    for (let index = 0; index < this.count; index++) if (!this.measured[index]) this.heights[index] = this.guess(index);
    this.changedFrom(0);
    this.keep(before);
    this.update();
  }

  changedFrom(index) {
    this.offsets.length = Math.min(this.offsets.length, index + 1);
  }

  offset(index) {
    for (let next = this.offsets.length; next <= index; next++) this.offsets[next] = this.offsets[next - 1] + this.heights[next - 1];
    return this.offsets[index];
  }

  /** The element at a place, counted in pixels from the top of the list. */
  at(place) {
    this.offset(this.count);
    let low = 0;
    let high = Math.max(0, this.count - 1);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Where the visible part begins, in pixels from the top of the list. */
  place() {
    return this.top() - this.box.getBoundingClientRect().top;
  }

  // What stays where it is: the selected element if it begins on the screen, else what is at the top.
  anchor() {
    const place = this.place();
    let index = this.at(place);
    const chosen = this.chosen();
    if (chosen > index && chosen < this.count && this.offset(chosen) < place + innerHeight - this.top()) index = chosen;
    return { index, below: this.offset(index) - place };
  }

  /** Scroll so that an element is where it was on the screen before heights changed. */
  keep(before) {
    if (this.atEnd()) {
      this.pad();
      this.end();
      return;
    }
    if (!this.count || this.place() <= 0) return;
    const moved = this.offset(Math.min(before.index, this.count)) - this.place() - before.below;
    // The browser may move the page itself when it gets shorter.
    const target = scrollY + moved;
    this.pad();
    if (Math.abs(target - scrollY) >= 1) scrollTo({ top: target, behavior: "instant" });
  }

  end() {
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  }

  pad() {
    const [first, last] = this.range || [0, -1];
    this.box.style.paddingTop = `${this.offset(Math.min(first, this.count))}px`;
    this.box.style.paddingBottom = `${this.offset(this.count) - this.offset(Math.min(last + 1, this.count))}px`;
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.update();
    });
  }

  update() {
    if (!this.count) {
      this.range = [0, -1];
      this.pad();
      return;
    }
    if (this.atEnd()) {
      // At the end the range may be far from where it was.
      this.pad();
      this.end();
    }
    // Measured heights can move the range; two rounds are enough, because the margin is large.
    for (let round = 0; round < 3 && this.fill(); round++);
    const place = this.place();
    const visible = [this.at(place + 8), this.at(place + innerHeight - this.top())];
    this.shown(...visible);
  }

  fill() {
    const place = this.place();
    const first = this.at(place - MARGIN);
    const last = this.at(place + innerHeight + MARGIN);
    const before = this.anchor();
    this.range = [first, last];
    for (const index of [...this.elements.keys()]) if (index < first || index > last) this.drop(index);
    const added = [];
    let following = null;
    for (let index = last; index >= first; index--) {
      let element = this.elements.get(index);
      if (!element) {
        element = this.render(index);
        this.elements.set(index, element);
        this.box.insertBefore(element, following);
        added.push(index);
      }
      following = element;
    }
    this.pad();
    const changed = this.measure(added);
    if (changed) this.keep(before);
    for (const index of added) this.sizes.observe(this.elements.get(index));
    return changed;
  }

  measure(indexes) {
    let changed = false;
    let lowest = Infinity;
    for (const index of indexes) {
      const height = this.elements.get(index).getBoundingClientRect().height;
      this.measured[index] = true;
      if (Math.abs(height - this.heights[index]) < 0.5) continue;
      this.heights[index] = height;
      lowest = Math.min(lowest, index);
      changed = true;
    }
    if (changed) this.changedFrom(lowest);
    return changed;
  }

  drop(index) {
    const element = this.elements.get(index);
    if (element.contains(document.activeElement)) this.box.focus({ preventScroll: true });
    this.sizes.unobserve(element);
    element.remove();
    this.elements.delete(index);
  }

  resized() {
    const before = this.anchor();
    if (!this.measure([...this.elements.keys()])) return;
    this.keep(before);
    this.pad();
    this.soon();
  }

  /** Make an element again, because its content has changed. */
  refresh(index) {
    const old = this.elements.get(index);
    if (!old) return;
    const before = this.anchor();
    const focused = old.contains(document.activeElement);
    const element = this.render(index);
    this.sizes.unobserve(old);
    old.replaceWith(element);
    this.elements.set(index, element);
    if (focused) element.focus({ preventScroll: true });
    if (this.measure([index])) this.keep(before);
    this.pad();
    this.sizes.observe(element);
  }

  /** Make all elements again. */
  refreshAll() {
    for (const index of this.elements.keys()) this.refresh(index);
    this.soon();
  }

  /** Scroll to an element, so that it begins below what covers the top. */
  scrollTo(index, gap = 12) {
    for (let round = 0; round < 4; round++) {
      const target = this.offset(index) + this.box.getBoundingClientRect().top + scrollY - this.top() - gap;
      scrollTo({ top: Math.max(0, target), behavior: "instant" });
      this.update();
      if (Math.abs(this.offset(index) + this.box.getBoundingClientRect().top - this.top() - gap) < 2) break;
    }
  }

  close() {
    removeEventListener("scroll", this.listen);
    removeEventListener("resize", this.listen);
    this.sizes.disconnect();
  }
}
