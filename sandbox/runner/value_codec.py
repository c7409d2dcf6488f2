"""Arrays, tables and images as bytes. The same code runs on the host and in the sandbox, so it is Python 3.8.

Bytes from the other side are checked, and never unpickled. Neither numpy nor pandas nor Pillow is imported before it is needed.
"""

import io
import json
import math
import re
import struct
from importlib import import_module

MAX_HEADER = 1024 * 1024
MAX_COLUMNS = 10_000
MAX_ROWS = 100_000_000
MAX_PIXELS = 50_000_000
MAX_DIMENSIONS = 32
# JSON is parsed in pieces, because no other thread runs meanwhile; lists and objects take far more memory than their text.
PIECE_ROWS = 100
MAX_PIECE_BYTES = 1024 * 1024
MAX_JSON_BYTES = 16 * 1024 * 1024
MAX_CONTAINERS = 50_000
TIMEZONE = re.compile(r"[A-Za-z][A-Za-z0-9_+:-]*(/[A-Za-z][A-Za-z0-9_+-]*)*|[+-]\d\d:\d\d", re.ASCII)
DTYPE = re.compile(
    r"[<>|=]?([biu][1248]|f[248]|c(8|16)|[Mm]8\[\d{0,4}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]|[SU]\d{1,6}|[?])", re.ASCII
)
MASKED = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean", re.ASCII)
# Lengths of what is not text.
NONE, NAN = -1, -2
CONVERT = "convert it first, for example with astype()"


def pack(kind, value):
    """Write a value.

    Args:
        kind: `array`, `table`, `series`, `image` or `bytes`.
        value: An array of numpy, a DataFrame or Series of pandas, an image of Pillow, or bytes.

    Raises:
        TypeError: It has parts that can't be written.
    """
    blobs = []
    header = {"kind": kind, "value": _WRITERS[kind](value, blobs)}
    header["sizes"] = [len(blob) for blob in blobs]
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER:
        raise TypeError("a table with so many columns can't be sent: send fewer")
    return b"".join([struct.pack("!I", len(text)), text, *blobs])


def unpack(kind, data):
    """Read a value.

    Args:
        kind: What it must be.
        data: The bytes.

    Raises:
        ValueError: It is something else, or malformed.
    """
    try:
        (length,) = struct.unpack_from("!I", data)
        if length > MAX_HEADER:
            raise ValueError("the header is too long")
        view = memoryview(data)
        header = json.loads(bytes(view[4 : 4 + length]).decode())
        if header["kind"] != kind:
            raise ValueError("it is of another kind")
        reader = Reader(view[4 + length :], header["sizes"])
        value = _READERS[kind](header["value"], reader)
        reader.finish()
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError, struct.error) as error:
        raise ValueError("it is malformed (%s)" % type(error).__name__) from None
    return value


class Reader:
    """The bytes of a value, read in order.

    Args:
        data: The bytes.
        sizes: Lengths of the parts.
    """

    def __init__(self, data, sizes):
        if not isinstance(sizes, list) or any(type(size) is not int or size < 0 for size in sizes):
            raise ValueError("the sizes are no list of numbers")
        if sum(sizes) != len(data):
            raise ValueError("it is cut off")
        self._data = data
        self._sizes = sizes
        self._next = self._offset = 0

    def take(self):
        """Return the next part."""
        size = self._sizes[self._next]
        part = self._data[self._offset : self._offset + size]
        self._next += 1
        self._offset += size
        return part

    def finish(self):
        """Check that all parts have been read."""
        if self._next != len(self._sizes):
            raise ValueError("it has more parts than its description")


# Arrays


def _write_array(value, blobs):
    numpy = import_module("numpy")

    array = numpy.asarray(value)
    if not DTYPE.fullmatch(array.dtype.str):
        raise TypeError("an array of dtype %s can't be sent: %s" % (array.dtype, CONVERT))
    blobs.append(array.tobytes())
    return {"dtype": array.dtype.str, "shape": list(array.shape)}


def _read_array(meta, reader):
    numpy = import_module("numpy")

    name, shape, data = meta["dtype"], meta["shape"], reader.take()
    if not isinstance(name, str) or not DTYPE.fullmatch(name):
        raise ValueError("arrays of this dtype are not accepted")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError("the shape is not a short list")
    dtype = numpy.dtype(name)
    size = dtype.itemsize
    for length in shape:
        if type(length) is not int or not 0 <= length < 2**62:
            raise ValueError("the shape has a length that can't be right")
        size *= length
    # numpy gives texts without a length one character each.
    if size != len(data) or (not dtype.itemsize and 0 not in shape):
        raise ValueError("the shape does not fit the number of bytes")
    if dtype.kind == "b":
        return (numpy.frombuffer(data, "u1") != 0).reshape(shape)
    if dtype.kind == "U" and size:
        codes = numpy.frombuffer(data, dtype.byteorder.replace("|", "=") + "u4")
        if codes.max() > 0x10FFFF or ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
            raise ValueError("the texts are no Unicode")
    # A copy, because the bytes can't be written to.
    return numpy.frombuffer(data, dtype).reshape(shape).copy() if size else numpy.empty(shape, dtype)


# Tables: each column with its dtype


def _write_table(frame, blobs):
    if len(frame.columns) > MAX_COLUMNS:
        raise TypeError("a table with %d columns can't be sent; at most %d" % (len(frame.columns), MAX_COLUMNS))
    return {
        "columns": _write_index(frame.columns, blobs, "the column names"),
        "index": _write_index(frame.index, blobs, "the index"),
        "data": [_write_values(frame.iloc[:, n], blobs, "column %r" % (name,)) for n, name in enumerate(frame.columns)],
    }


def _read_table(meta, reader):
    pandas = import_module("pandas")

    columns, index = _read_index(meta["columns"], reader), _read_index(meta["index"], reader)
    metas = meta["data"]
    if not isinstance(metas, list) or len(metas) > MAX_COLUMNS or len(metas) != len(columns):
        raise ValueError("the columns do not fit their names")
    frame = pandas.DataFrame(
        {n: _column(_read_values(each, reader), index) for n, each in enumerate(metas)}, index=index
    )
    frame.columns = columns
    return frame


def _write_series(series, blobs):
    return {
        "name": _scalar(series.name),
        "index": _write_index(series.index, blobs, "the index"),
        "data": _write_values(series, blobs, "the series"),
    }


def _read_series(meta, reader):

    index = _read_index(meta["index"], reader)
    return _column(_read_values(meta["data"], reader), index).rename(_label(meta["name"]))


def _column(values, index):
    """Make a column; with its dtype, because pandas would make texts of Python objects that are texts."""
    if len(values) != len(index):
        raise ValueError("a column does not fit the index")
    return import_module("pandas").Series(values, index=index, dtype=values.dtype)


def _write_index(index, blobs, what):
    pandas = import_module("pandas")

    names = [_scalar(name) for name in index.names]
    if isinstance(index, pandas.RangeIndex):
        return {"type": "range", "range": [index.start, index.stop, index.step], "names": names}
    if isinstance(index, pandas.MultiIndex):
        levels = [index.get_level_values(n).to_series(index=range(len(index))) for n in range(index.nlevels)]
        return {"type": "levels", "levels": [_write_values(level, blobs, what) for level in levels], "names": names}
    return {"type": "plain", "values": _write_values(pandas.Series(index), blobs, what), "names": names}


def _read_index(meta, reader):
    pandas = import_module("pandas")

    names = [_label(name) for name in meta["names"]]
    if meta["type"] == "range":
        start, stop, step = meta["range"]
        numbers = range(start, stop, step)
        if max(map(abs, (start, stop, step))) > 2**62 or len(numbers) > MAX_ROWS:
            raise ValueError("the index is too long")
        index = pandas.RangeIndex(numbers)
    elif meta["type"] == "levels":
        index = pandas.MultiIndex.from_arrays([_read_values(level, reader) for level in meta["levels"]])
    else:
        values = _read_values(meta["values"], reader)
        index = pandas.Index(values, dtype=values.dtype)
    index.names = names
    return index


def _write_values(series, blobs, what):  # noqa: PLR0911 - one for each kind of column
    pandas = import_module("pandas")

    dtype, name = series.dtype, str(series.dtype)
    if isinstance(dtype, pandas.CategoricalDtype):
        codes = _write_array(series.cat.codes.to_numpy(), blobs)
        categories = _write_values(pandas.Series(dtype.categories), blobs, what)
        return {"type": "category", "codes": codes, "categories": categories, "ordered": bool(dtype.ordered)}
    if isinstance(dtype, pandas.DatetimeTZDtype):
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return {"type": "moments", "timezone": str(dtype.tz), "values": _write_array(moments, blobs)}
    if MASKED.fullmatch(name):
        plain = series.fillna(False if name == "boolean" else 0).to_numpy(dtype=name.lower().replace("boolean", "bool"))
        return {
            "type": name,
            "values": _write_array(plain, blobs),
            "missing": _write_array(series.isna().to_numpy(), blobs),
        }
    if isinstance(dtype, pandas.StringDtype):
        texts = series.astype(object).where(series.notna(), None).tolist()
        return {"type": "text", "dtype": name if name == "str" else "string", "count": _write_texts(texts, blobs)}
    if (
        getattr(dtype, "kind", "") in "biufcMm"
        and not hasattr(dtype, "numpy_dtype")
        and DTYPE.fullmatch(getattr(dtype, "str", ""))
    ):
        return {"type": "array", "values": _write_array(series.to_numpy(), blobs)}
    if name == "object":
        return _write_objects(series.tolist(), blobs, what)
    raise TypeError("%s has the dtype %s, which can't be sent: %s" % (what, name, CONVERT))


def _read_values(meta, reader):  # noqa: PLR0911 - as above
    pandas = import_module("pandas")

    kind = meta["type"]
    if kind == "array":
        return _one_dimensional(_read_array(meta["values"], reader))
    if kind == "category":
        codes = _one_dimensional(_read_array(meta["codes"], reader))
        categories = _read_values(meta["categories"], reader)
        categories = pandas.Index(categories, dtype=categories.dtype)
        return pandas.Categorical.from_codes(codes, categories=categories, ordered=meta["ordered"] is True)
    if kind == "moments":
        if (
            not isinstance(meta["timezone"], str)
            or not TIMEZONE.fullmatch(meta["timezone"])
            or len(meta["timezone"]) > 64
        ):
            raise ValueError("the time zone is none")
        values = _one_dimensional(_read_array(meta["values"], reader))
        return pandas.Series(pandas.DatetimeIndex(values).tz_localize("UTC").tz_convert(meta["timezone"])).array
    if isinstance(kind, str) and MASKED.fullmatch(kind):
        values = _one_dimensional(_read_array(meta["values"], reader))
        missing = _one_dimensional(_read_array(meta["missing"], reader))
        made = pandas.array(values, dtype=kind)
        made[missing] = pandas.NA
        return made
    if kind == "text":
        texts = _read_texts(meta["count"], reader)
        has_str = int(pandas.__version__.partition(".")[0]) >= 3
        dtype = {"string": "string", "str": "str" if has_str else object}.get(meta["dtype"], object)
        return pandas.Series(texts, dtype=dtype).array
    if kind == "objects":
        return _read_objects(meta["count"], reader)
    raise ValueError("a column is of an unknown type")


def _one_dimensional(array):
    if array.ndim != 1 or len(array) > MAX_ROWS:
        raise ValueError("a column is not a list of values")
    return array


def _write_texts(texts, blobs):
    numpy = import_module("numpy")

    encoded = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in texts]
    lengths = [len(each) if isinstance(each, bytes) else NONE if each is None else NAN for each in encoded]
    blobs.append(numpy.array(lengths, "<i4").tobytes())
    blobs.append(b"".join(each for each in encoded if isinstance(each, bytes)))
    return len(texts)


def _read_texts(count, reader):
    numpy = import_module("numpy")

    lengths, data = reader.take(), reader.take()
    if type(count) is not int or len(lengths) != 4 * count:
        raise ValueError("a column has another number of texts")
    texts, offset, data = [], 0, bytes(data)
    for length in numpy.frombuffer(lengths, "<i4").tolist():
        if length < 0:
            texts.append(None if length == NONE else math.nan)
            continue
        texts.append(data[offset : offset + length].decode("utf-8", "surrogatepass"))
        offset += length
    if offset != len(data):
        raise ValueError("the texts of a column have another length")
    return texts


def _write_objects(values, blobs, what):
    if all(value is None or type(value) is str or (type(value) is float and math.isnan(value)) for value in values):
        return {"type": "text", "dtype": "object", "count": _write_texts(values, blobs)}
    parts = [values[start : start + PIECE_ROWS] for start in range(0, len(values), PIECE_ROWS)]
    try:
        pieces = [json.dumps(part, default=_item, separators=(",", ":")) for part in parts]
    except (TypeError, ValueError) as error:
        text = "%s holds values that can't be sent (%s): give it another dtype, for example with pandas.to_datetime()"
        raise TypeError(text % (what, error)) from None
    if sum(map(len, pieces)) > MAX_JSON_BYTES or max(map(len, pieces), default=0) > MAX_PIECE_BYTES:
        text = "%s holds more than %d bytes of Python objects, or more than %d in %d rows: %s"
        raise TypeError(text % (what, MAX_JSON_BYTES, MAX_PIECE_BYTES, PIECE_ROWS, CONVERT))
    _write_texts(pieces, blobs)
    return {"type": "objects", "count": len(pieces)}


def _item(value):
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy
        return value.item()
    raise TypeError("a %s" % type(value).__name__)


def _read_objects(count, reader):
    numpy = import_module("numpy")

    pieces = _read_texts(count, reader)
    containers = sum(piece.count("[") + piece.count("{") for piece in pieces)
    too_long = sum(map(len, pieces)) > MAX_JSON_BYTES or any(len(piece) > MAX_PIECE_BYTES for piece in pieces)
    if too_long or containers > MAX_CONTAINERS + len(pieces):
        raise ValueError("a column of Python objects is too large")
    values = [value for piece in pieces for value in json.loads(piece)]
    array = numpy.empty(len(values), object)
    for number, value in enumerate(values):
        array[number] = value
    return array


def _scalar(name):
    """Return the name of an index or a series; one that JSON can't hold as text."""
    if isinstance(name, tuple):
        return [_scalar(each) for each in name]
    name = name.item() if hasattr(name, "item") else name
    return name if name is None or type(name) in (str, int, float, bool) else str(name)


def _label(name):
    if isinstance(name, list):
        return tuple(map(_label, name))
    if isinstance(name, dict):
        raise ValueError("a name is an object")
    return name


# Images and bytes


def _write_image(image, blobs):
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=1)
    blobs.append(file.getvalue())


def _read_image(_, reader):
    Image = import_module("PIL.Image")  # noqa: N806 - a module

    try:
        image = Image.open(io.BytesIO(bytes(reader.take())), formats=["PNG"])
        if image.width * image.height > MAX_PIXELS:
            raise ValueError("the image has %d × %d pixels" % image.size)
        image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("it is no PNG image (%s)" % type(error).__name__) from None
    return image


def _write_bytes(value, blobs):
    blobs.append(bytes(value))


def _read_bytes(_, reader):
    return bytes(reader.take())


_WRITERS = {
    "array": _write_array,
    "table": _write_table,
    "series": _write_series,
    "image": _write_image,
    "bytes": _write_bytes,
}
_READERS = {
    "array": _read_array,
    "table": _read_table,
    "series": _read_series,
    "image": _read_image,
    "bytes": _read_bytes,
}
