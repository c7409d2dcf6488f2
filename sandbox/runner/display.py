"""`display()` and what belongs to it, as code calls them; where a shell is loaded, its formatters are used."""

import os

from . import bundles, displays


class DisplayHandle:
    """A display that can be replaced while its block runs.

    Args:
        display_id: Its name. Default: a random one.
    """

    def __init__(self, display_id=None):
        self.display_id = display_id if display_id is not None else os.urandom(16).hex()

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

    def display(self, thing, **options):
        """Show an object under this name."""
        display(thing, display_id=self.display_id, **options)

    def update(self, thing, **options):
        """Replace what is shown under this name."""
        display(thing, display_id=self.display_id, update=True, **options)


def display(
    *things,
    include=None,
    exclude=None,
    metadata=None,
    transient=None,
    display_id=None,
    raw=False,
    clear=False,
    **options,
):
    """Show objects: as images, HTML and whatever else they can be shown as.

    Args:
        things: The objects.
        include: MIME types to show, all others are left out. Default: all.
        exclude: MIME types to leave out. Default: none.
        metadata: What belongs to the displays. Default: nothing.
        transient: Accepted, without effect.
        display_id: Name by which `update_display` can replace it; True for a random one. Default: none.
        raw: Whether the objects are bundles already: values by MIME type. Default: no.
        clear: Whether to drop what the block has shown before. Default: no.
        options: `update=True` replaces the display with this `display_id`.

    Returns:
        With `display_id` a `DisplayHandle`, else None.
    """
    update = options.pop("update", False)
    if clear:
        displays.clear()
    handle = DisplayHandle(None if display_id is True else display_id) if display_id is not None else None
    for thing in things:
        made = _bundle(thing, raw)
        if made is None:
            continue
        data = {
            name: value
            for name, value in made[0].items()
            if (not include or name in include) and not (exclude and name in exclude)
        }
        displays.publish(data, dict(made[1], **(metadata or {})), handle and handle.display_id, update)
    return handle


def update_display(thing, *, display_id, **options):
    """Replace the display with a name; arguments as for `display`."""
    display(thing, display_id=display_id, **dict(options, update=True))


def publish_display_data(data, metadata=None, *, transient=None, **_options):
    """Show a bundle.

    Args:
        data: Values by MIME type.
        metadata: What belongs to it. Default: nothing.
        transient: With `display_id`, its name. Default: none.
    """
    displays.publish(data, metadata, (transient or {}).get("display_id"), _options.get("update", False))


def clear_output(wait=False):
    """Drop what the block has shown before; printed text stays.

    Args:
        wait: Accepted, without effect: what is shown next comes at once.
    """
    displays.clear()


def show_value(thing, text):
    """Show the value of a cell's last expression, unless its text is all there is.

    Args:
        thing: The value.
        text: What is printed of it.

    Returns:
        What to print: the text, with the name of the file if the host makes one.
    """
    if not bundles.is_rich(thing):
        return text
    made = bundles.of(thing, text)
    if made is None:
        return None
    return displays.publish(made[0], made[1], echo=False)


def _bundle(thing, raw):
    if raw:
        if not isinstance(thing, dict):
            raise TypeError("with raw=True, display() takes dicts: values by MIME type")
        return thing, {}
    return bundles.of(thing)
