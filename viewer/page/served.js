// A web page that the code of a live run serves, in a frame. It is hostile: its address is an origin of its own, and the frame lets it
// neither leave nor open a window, a dialog or a download.

const FRAME_MAY = "allow-scripts allow-forms allow-same-origin";

class ServedPage {
  /** `open(port)` returns the address of a port of the sandbox. */
  constructor(open) {
    this.open = open;
    this.port = h("input", { type: "number", min: 1, max: 65535, placeholder: "8000", onkeydown: (event) => event.key === "Enter" && this.load() });
    this.told = h("p.muted", { role: "status" });
    this.frame = h("div", null);
    this.element = h("section.served", { "aria-label": "Web page of the code", hidden: true },
      h("p.port", null, h("label", null, "Port in the sandbox ", this.port), h("button", { type: "button", onclick: () => this.load() }, "Open"),
        h("button", { type: "button", onclick: () => this.show(false) }, "Close")), this.told, this.frame);
  }

  show(shown) {
    this.element.hidden = !shown;
    this.frame.replaceChildren();
    this.told.replaceChildren();
    if (!shown) return;
    this.element.scrollIntoView({ block: "center", behavior: "instant" });
    this.port.focus({ preventScroll: true });
  }

  async load() {
    const port = Number(this.port.value || this.port.placeholder);
    this.frame.replaceChildren();
    try {
      const url = await this.open(port);
      this.told.replaceChildren(h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "In a tab of its own"),
        ". The code has made this page; it can use this browser's network.");
      this.frame.append(h("iframe", { src: url, title: `Port ${port} of the sandbox`, sandbox: FRAME_MAY, referrerpolicy: "no-referrer" }));
    } catch (error) {
      this.told.replaceChildren(h("span.problem", null, visible(error.message)));
    }
  }
}
