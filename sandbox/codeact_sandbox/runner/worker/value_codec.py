"""Arrays, tables and images as bytes. The same code runs on the host and in the sandbox, so it is Python 3.8.

Bytes from the other side are checked, and never unpickled. Neither numpy nor pandas nor Pillow is imported before it is needed.
"""

import io
import itertools
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
# While JSON is parsed no other thread runs; its lists and objects take far more memory than their text.
MAX_JSON_BYTES = 1024 * 1024
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
    """Write an `array` of numpy, a `table` of pandas, or an `image` of Pillow; raises a TypeError if it can't."""
    blobs = []
    header = {"kind": kind, "value": _WRITERS[kind](value, blobs)}
    header["sizes"] = [len(blob) for blob in blobs]
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER:
        raise TypeError("a table with so many columns can't be sent: send fewer")
    return b"".join([struct.pack("!I", len(text)), text, *blobs])


def unpack(kind, data):
    """Read a value of a kind; raises a ValueError if it is something else, or malformed."""
    try:
        (length,) = struct.unpack_from("!I", data)
        if length > MAX_HEADER:
            raise ValueError("the header is too long")
        view = memoryview(data)
        header = json.loads(bytes(view[4 : 4 + length]).decode())
        if header["kind"] != kind:
            raise ValueError("it is of another kind")
        parts = _parts(view[4 + length :], header["sizes"])
        value = _READERS[kind](header["value"], parts)
        if next(parts, None) is not None:
            raise ValueError("it has more parts than its description")
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError, struct.error) as error:
        raise ValueError("it is malformed (%s)" % type(error).__name__) from None
    except StopIteration:
        raise ValueError("it has fewer parts than its description") from None
    return value


def _parts(data, sizes):
    """Return an iterator of the parts of a value."""
    if not isinstance(sizes, list) or any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError("the sizes are no list of numbers")
    if sum(sizes) != len(data):
        raise ValueError("it is cut off")
    ends = itertools.accumulate(sizes)
    return (data[end - size : end] for size, end in zip(sizes, ends))


# Arrays


def _write_array(value, blobs):
    numpy = import_module("numpy")

    array = numpy.asarray(value)
    if not DTYPE.fullmatch(array.dtype.str):
        raise TypeError("an array of dtype %s can't be sent: %s" % (array.dtype, CONVERT))
    blobs.append(array.tobytes())
    return {"dtype": array.dtype.str, "shape": list(array.shape)}


def _read_array(meta, parts):
    numpy = import_module("numpy")

    name, shape, data = meta["dtype"], meta["shape"], next(parts)
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
        "data": [_write_column(frame.iloc[:, n], blobs, "column %r" % (name,)) for n, name in enumerate(frame.columns)],
    }


def _read_table(meta, parts):
    pandas = import_module("pandas")

    columns, index = _read_index(meta["columns"], parts), _read_index(meta["index"], parts)
    metas = meta["data"]
    if not isinstance(metas, list) or len(metas) > MAX_COLUMNS or len(metas) != len(columns):
        raise ValueError("the columns do not fit their names")
    read = [_read_column(each, parts) for each in metas]
    if any(len(values) != len(index) for values in read):
        raise ValueError("a column does not fit the index")
    # With its dtype, because pandas would make texts of Python objects that are texts.
    series = {n: pandas.Series(values, index=index, dtype=values.dtype) for n, values in enumerate(read)}
    frame = pandas.DataFrame(series, index=index)
    frame.columns = columns
    return frame


def _write_index(index, blobs, what):
    pandas = import_module("pandas")

    names = [name if isinstance(name, (str, int, type(None))) else str(name) for name in index.names]
    if isinstance(index, pandas.RangeIndex):
        return {"range": [index.start, index.stop, index.step], "names": names}
    levels = [pandas.Series(index.get_level_values(n), index=range(len(index))) for n in range(index.nlevels)]
    return {"levels": [_write_column(level, blobs, what) for level in levels], "names": names}


def _read_index(meta, parts):
    pandas = import_module("pandas")

    names = meta["names"]
    if not isinstance(names, list) or any(isinstance(name, (list, dict)) for name in names):
        raise ValueError("the names of an index are no list of texts")
    if "range" in meta:
        start, stop, step = meta["range"]
        numbers = range(start, stop, step)
        if max(map(abs, (start, stop, step))) > 2**62 or len(numbers) > MAX_ROWS:
            raise ValueError("the index is too long")
        index = pandas.RangeIndex(numbers)
    else:
        levels = [_read_column(level, parts) for level in meta["levels"]]
        one = len(levels) == 1
        index = pandas.Index(levels[0], dtype=levels[0].dtype) if one else pandas.MultiIndex.from_arrays(levels)
    index.names = names
    return index


def _write_column(series, blobs, what):
    numpy, pandas = import_module("numpy"), import_module("pandas")

    if isinstance(series.dtype, pandas.CategoricalDtype):
        series = pandas.Series(numpy.asarray(series))
    dtype, name = series.dtype, str(series.dtype)
    if isinstance(dtype, pandas.DatetimeTZDtype):
        moments = series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return {"type": "moments", "timezone": str(dtype.tz), "values": _write_array(moments, blobs)}
    if MASKED.fullmatch(name):
        plain = series.fillna(False if name == "boolean" else 0).to_numpy(dtype=name.lower().replace("boolean", "bool"))
        missing = _write_array(series.isna().to_numpy(), blobs)
        return {"type": name, "missing": missing, "values": _write_array(plain, blobs)}
    if isinstance(dtype, pandas.StringDtype):
        texts = series.astype(object).where(series.notna(), None).tolist()
        return {"type": "text", "dtype": name if name == "str" else "string", "count": _write_texts(texts, blobs)}
    if name == "object":
        return _write_objects(series.tolist(), blobs, what)
    if not hasattr(dtype, "numpy_dtype") and DTYPE.fullmatch(getattr(dtype, "str", "")):
        return {"type": "array", "values": _write_array(series.to_numpy(), blobs)}
    raise TypeError("%s has the dtype %s, which can't be sent: %s" % (what, name, CONVERT))


def _read_column(meta, parts):
    pandas = import_module("pandas")

    kind = meta["type"]
    if kind == "text":
        texts = _read_texts(meta["count"], parts)
        has_str = int(pandas.__version__.partition(".")[0]) >= 3
        dtype = {"string": "string", "str": "str" if has_str else object}.get(meta["dtype"], object)
        return pandas.Series(texts, dtype=dtype).array
    if kind == "objects":
        return _read_objects(parts)
    missing = _read_array(meta["missing"], parts) if "missing" in meta else None
    values = _read_array(meta["values"], parts)
    if values.ndim != 1 or len(values) > MAX_ROWS:
        raise ValueError("a column is not a list of values")
    if kind == "array":
        return values
    if kind == "moments":
        zone = meta["timezone"]
        if not isinstance(zone, str) or not TIMEZONE.fullmatch(zone) or len(zone) > 64:
            raise ValueError("the time zone is none")
        return pandas.Series(pandas.DatetimeIndex(values).tz_localize("UTC").tz_convert(zone)).array
    if not isinstance(kind, str) or not MASKED.fullmatch(kind):
        raise ValueError("a column is of an unknown type")
    made = pandas.array(values, dtype=kind)
    made[missing] = pandas.NA
    return made


def _write_texts(texts, blobs):
    numpy = import_module("numpy")

    encoded = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in texts]
    lengths = [len(each) if isinstance(each, bytes) else NONE if each is None else NAN for each in encoded]
    blobs.append(numpy.array(lengths, "<i4").tobytes())
    blobs.append(b"".join(each for each in encoded if isinstance(each, bytes)))
    return len(texts)


def _read_texts(count, parts):
    numpy = import_module("numpy")

    lengths, data = next(parts), bytes(next(parts))
    if type(count) is not int or len(lengths) != 4 * count:
        raise ValueError("a column has another number of texts")
    texts, offset = [], 0
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
    try:
        text = json.dumps(values, default=_item, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        text = "%s holds values that can't be sent (%s): give it another dtype, for example with pandas.to_datetime()"
        raise TypeError(text % (what, error)) from None
    if len(text) > MAX_JSON_BYTES:
        raise TypeError("%s holds more than %d bytes of Python objects: %s" % (what, MAX_JSON_BYTES, CONVERT))
    blobs.append(text)
    return {"type": "objects"}


def _item(value):
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy
        return value.item()
    raise TypeError("a %s" % type(value).__name__)


def _read_objects(parts):
    numpy = import_module("numpy")

    text = bytes(next(parts))
    if len(text) > MAX_JSON_BYTES or text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
        raise ValueError("a column of Python objects is too large")
    values = json.loads(text)
    if not isinstance(values, list):
        raise ValueError("a column of Python objects is no list")
    array = numpy.empty(len(values), object)
    for number, value in enumerate(values):
        array[number] = value
    return array


# Images


def _write_image(image, blobs):
    file = io.BytesIO()
    image.save(file, format="PNG", compress_level=1)
    blobs.append(file.getvalue())


def _read_image(_, parts):
    Image = import_module("PIL.Image")  # noqa: N806 - a module

    try:
        image = Image.open(io.BytesIO(bytes(next(parts))), formats=["PNG"])
        if image.width * image.height > MAX_PIXELS:
            raise ValueError("the image has %d × %d pixels" % image.size)
        image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("it is no PNG image (%s)" % type(error).__name__) from None
    return image


_WRITERS = {"array": _write_array, "table": _write_table, "image": _write_image}
_READERS = {"array": _read_array, "table": _read_table, "image": _read_image}
