// A long list: its items are in parts of the same number, which are filled when they come near the screen and emptied when they are
// far from it. The browser keeps what is on the screen in its place when a part above gets another height.

const NEAR = "1000px"; // above and below the screen

/**
 * `load(from, to)` returns the elements of items, `height` is a guess of an item's height in pixels, `tag` is the element of a part,
 * `root` is what scrolls if it is not the window, `filled()` is called when a part has got its items, `failed(error)` if it has not.
 */
class PartList {
  constructor({ box, load, size, height, tag = "div", root = null, filled = () => {}, failed = () => {} }) {
    Object.assign(this, { box, load, size, height, tag, filled, failed });
    this.count = 0;
    this.parts = [];
    this.refreshing = new Map(); // by number: whether the item has changed again
    this.near = new IntersectionObserver((entries) => this.moved(entries), { root, rootMargin: `${NEAR} 0px` });
  }

  setCount(count) {
    const before = this.count;
    this.count = count;
    while (this.parts.length * this.size < count) this.addPart();
    while ((this.parts.length - 1) * this.size >= count) this.removePart();
    if (before === count) return;
    for (const part of this.parts.slice(Math.floor(Math.min(before, count) / this.size))) {
      if (part.isFilled || part.filling) this.fill(part, true);
      else this.reserve(part);
    }
  }

  addPart() {
    const part = { index: this.parts.length, element: h(`${this.tag}.part`), isNear: false, isFilled: false, filling: null };
    part.element.itemPart = part;
    this.parts.push(part);
    this.box.append(part.element);
    this.near.observe(part.element);
  }

  removePart() {
    const part = this.parts.pop();
    this.near.unobserve(part.element);
    part.element.remove();
  }

  range(part) {
    return [part.index * this.size + 1, Math.min((part.index + 1) * this.size, this.count)];
  }

  reserve(part) {
    const [from, to] = this.range(part);
    part.element.style.minHeight = `${part.height || (to - from + 1) * this.height}px`;
  }

  moved(entries) {
    for (const { target, isIntersecting } of entries) {
      const part = target.itemPart;
      part.isNear = isIntersecting;
      if (isIntersecting && !part.isFilled) this.fill(part);
      else if (!isIntersecting && part.isFilled) this.empty(part);
    }
  }

  empty(part) {
    if (part.element.contains(document.activeElement)) this.box.focus({ preventScroll: true });
    part.height = part.element.offsetHeight;
    part.isFilled = false;
    this.reserve(part);
    part.element.replaceChildren();
  }

  /** Fill a part; with `again` also if it is filled already, because its items have changed. */
  async fill(part, again = false) {
    if (part.filling && !again) return part.filling;
    if (!part.isFilled) part.element.classList.add("placeholder");
    const filling = this.load(...this.range(part));
    part.filling = filling;
    try {
      const items = await filling;
      if (part.filling !== filling) return part.filling; // there is a newer request
      const focused = [...part.element.children].findIndex((item) => item.contains(document.activeElement));
      part.element.replaceChildren(...items);
      part.element.style.minHeight = "";
      part.isFilled = true;
      if (focused >= 0 && items[focused]) items[focused].focus({ preventScroll: true });
      this.filled();
    } catch (error) {
      this.failed(error);
    } finally {
      if (part.filling === filling) part.filling = null;
      part.element.classList.remove("placeholder");
    }
    return undefined;
  }

  /** Return an item if it is in the page. */
  item(number) {
    const part = this.parts[Math.floor((number - 1) / this.size)];
    return part && part.isFilled ? part.element.children[(number - 1) % this.size] : undefined;
  }

  /** Return an item, after it was loaded if need be. */
  async show(number) {
    const part = this.parts[Math.floor((number - 1) / this.size)];
    if (part && !part.isFilled) await this.fill(part);
    return this.item(number);
  }

  /** Load an item again if it is in the page. */
  async refresh(number) {
    if (!this.item(number)) return;
    if (this.refreshing.has(number)) {
      this.refreshing.set(number, true);
      return;
    }
    this.refreshing.set(number, false);
    try {
      const [next] = await this.load(number, number);
      const now = this.item(number);
      if (!next || !now) return;
      const focused = now.contains(document.activeElement);
      now.replaceWith(next);
      if (focused) next.focus({ preventScroll: true });
      this.filled();
    } catch (error) {
      this.failed(error);
    } finally {
      const again = this.refreshing.get(number);
      this.refreshing.delete(number);
      if (again) this.refresh(number);
    }
  }

  /** Load everything again that is in the page. */
  refreshAll() {
    for (const part of this.parts) if (part.isFilled || part.isNear) this.fill(part, true);
  }
}
