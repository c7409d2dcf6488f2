"""Arrays, tables and images as bytes: numpy's files, CSV and PNG. The same code runs on the host and in the sandbox: Python 3.8.

Bytes from the other side are checked, and never unpickled. Neither numpy nor pandas nor Pillow is imported before it is needed.
"""

import io
import json
import math
import re
from importlib import import_module

MAX_CSV_BYTES = 64 * 1024 * 1024
MAX_COLUMNS = 10_000
MAX_ARRAY_HEADER = 66_000
# Lists and objects in cells: they take far more memory than their text.
MAX_CONTAINERS = 50_000
MAX_PIXELS = 50_000_000
PIXEL_BYTES = 4
CELLS_AT_ONCE = 50_000
CELL_BYTES = 80  # of a short text in memory, with what refers to it
MISSING = "<missing>"
TEXTS = ("text", "string", "str", "json")
MASKED = re.compile(r"boolean|U?Int(8|16|32|64)|Float(32|64)")
ZONED = re.compile(
    r"datetime64\[(?:s|ms|us|ns), ([A-Za-z][A-Za-z0-9_+:-]*(?:/[A-Za-z][A-Za-z0-9_+-]*)*|[+-]\d\d:\d\d)\]", re.ASCII
)
CONVERT = "convert it first, for example with astype()"


def pack(kind, value):
    """Write an `array` of numpy, a `table` of pandas, or an `image` of Pillow; raises a TypeError if it can't."""
    file = io.BytesIO()
    _WRITERS[kind](value, file)
    return file.getvalue()


def unpack(kind, data, take=lambda size: None):
    """Read a value of a kind; raises a ValueError if it is something else, or malformed.

    `take` is called with the bytes of memory that it will need, before it has them, and raises a ValueError if they are too many.
    """
    try:
        return _READERS[kind](data, take)
    except (KeyError, TypeError, IndexError, AttributeError, ArithmeticError, RecursionError, StopIteration) as error:
        raise ValueError("it is malformed (%s)" % type(error).__name__) from None


def _write_array(value, file):
    numpy = import_module("numpy")

    array = numpy.asarray(value)
    if array.dtype.kind not in "biufcmMSU":
        raise TypeError("an array of dtype %s can't be sent: %s" % (array.dtype, CONVERT))
    numpy.save(file, array, allow_pickle=False)


def _read_array(data, take):
    numpy = import_module("numpy")

    file = io.BytesIO(bytes(data[:MAX_ARRAY_HEADER]))
    if numpy.lib.format.read_magic(file) != (1, 0):
        raise ValueError("its header is of an unknown version")
    shape, is_fortran, dtype = numpy.lib.format.read_array_header_1_0(file)
    # Checked before, because memory is taken before the bytes are counted.
    if dtype.kind not in "biufcmMSU" or not dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError("arrays of this dtype or shape are not accepted")
    if math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError("the shape does not fit the number of bytes")
    take(len(data))
    array = numpy.frombuffer(data, dtype, math.prod(shape), file.tell()).copy()
    array = array.reshape(shape, order="F" if is_fortran else "C")
    if dtype.kind == "b":
        return array.view("u1") != 0
    if dtype.kind == "U" and array.size:
        codes = numpy.frombuffer(data, dtype.byteorder.replace("|", "=") + "u4", offset=len(data) - array.nbytes)
        if codes.max() > 0x10FFFF or ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
            raise ValueError("the texts are not Unicode")
    return array


# A table is a line of JSON, arrays for the columns that numpy has, and CSV of the other ones.


def _write_table(frame, file):
    pandas = import_module("pandas")

    if len(frame.columns) > MAX_COLUMNS:
        raise TypeError("a table with %d columns can't be sent; at most %d" % (len(frame.columns), MAX_COLUMNS))
    levels = [frame.index.get_level_values(number) for number in range(frame.index.nlevels)]
    columns = {number: ("the index", level.to_series()) for number, level in enumerate(levels)}
    for number, name in enumerate(frame.columns):
        columns[len(levels) + number] = "column %r" % (name,), frame.iloc[:, number]
    written = [_write_column(series.reset_index(drop=True), what) for what, series in columns.values()]
    arrays = [pack("array", values) if _is_array(dtype) else None for dtype, values in written]
    rest = {number: values for number, (dtype, values) in enumerate(written) if not _is_array(dtype)}
    header = {
        "index": [_name(name) for name in frame.index.names],
        "columns": [_name(name) for name in frame.columns],
        "names": [_name(name) for name in frame.columns.names],
        "dtypes": [dtype for dtype, _ in written],
        "sizes": [len(array) for array in arrays if array is not None],
    }
    csv = pandas.DataFrame(rest).to_csv(index=False, na_rep=MISSING, quoting=2).encode("utf-8", "surrogatepass")
    if b"\0" in csv or len(csv) > MAX_CSV_BYTES:
        raise TypeError(
            "a table with more than %d bytes of text, or with NUL, can't be sent: send a file" % MAX_CSV_BYTES
        )
    file.write(json.dumps(header).encode() + b"\n" + b"".join(filter(None, arrays)) + csv)


def _read_table(data, take):
    pandas = import_module("pandas")

    start = data.index(b"\n", 0, MAX_CSV_BYTES) + 1
    data = memoryview(data)
    header = json.loads(bytes(data[:start]))
    dtypes, sizes, levels = header["dtypes"], iter(header["sizes"]), len(header["index"])
    if len(dtypes) > MAX_COLUMNS or levels < 1 or levels + len(header["columns"]) != len(dtypes):
        raise ValueError("its columns do not fit their names")
    columns = {}
    for number in filter(lambda number: _is_array(dtypes[number]), range(len(dtypes))):
        end = start + next(sizes)
        columns[number] = _read_array(data[start:end], take)
        start = end
    rest = {number: dtype for number, dtype in enumerate(dtypes) if number not in columns}
    csv = bytes(data[start : start + MAX_CSV_BYTES])
    take(len(csv) * (1 if csv.isascii() else 4) + (csv.count(b",") + csv.count(b"\n")) * CELL_BYTES)
    columns.update(_read_csv(csv, rest))
    read = [_read_column(columns[number], dtype) for number, dtype in enumerate(dtypes)]
    if any(len(each) != len(read[0]) for each in read):
        raise ValueError("its columns are not equally long")
    frame = pandas.DataFrame(dict(enumerate(read[levels:])), index=range(len(read[0])))
    frame.index = pandas.MultiIndex.from_arrays(read[:levels]) if levels > 1 else pandas.Index(read[0])
    frame.index.names = _names(header["index"])
    frame.columns = pandas.Index(_names(header["columns"]))
    frame.columns.names = _names(header["names"])
    return frame


def _read_csv(text, dtypes):
    pandas = import_module("pandas")

    if not dtypes:
        return {}
    if not all(dtype in TEXTS or MASKED.fullmatch(dtype) for dtype in dtypes.values()):
        raise ValueError("a column is of an unknown dtype")
    if "json" in dtypes.values() and text.count(b"[") + text.count(b"{") > MAX_CONTAINERS:
        raise ValueError("it holds more than %d lists and objects" % MAX_CONTAINERS)
    # In parts, because no other thread runs while one is read.
    parts = pandas.read_csv(
        io.BytesIO(text),
        chunksize=max(100, CELLS_AT_ONCE // len(dtypes)),
        header=0,
        names=list(dtypes),
        index_col=False,
        dtype={number: object if dtype in TEXTS else dtype for number, dtype in dtypes.items()},
        keep_default_na=False,
        na_values=[MISSING],
        skip_blank_lines=False,
        encoding_errors="surrogatepass",
    )
    return pandas.concat(list(parts), ignore_index=True)


def _is_array(dtype):
    return dtype == "array" or ZONED.fullmatch(dtype) is not None


def _name(name):
    if isinstance(name, tuple):
        return [_name(each) for each in name]
    return name if isinstance(name, (str, int, type(None))) else str(name)


def _names(names):
    return [tuple(name) if isinstance(name, list) else name for name in names]


def _write_column(series, what):
    """Return the dtype of a column, and its values as they are written."""
    pandas = import_module("pandas")

    if isinstance(series.dtype, pandas.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    dtype = str(series.dtype)
    if ZONED.fullmatch(dtype):
        return dtype, series.dt.tz_convert(None).to_numpy()
    if dtype in ("string", "str") or MASKED.fullmatch(dtype):
        return dtype, series
    if getattr(series.dtype, "kind", "") in "biufcmM" and hasattr(series.dtype, "str"):
        return "array", series.to_numpy()
    if dtype != "object":
        raise TypeError("%s has the dtype %s, which can't be sent: %s" % (what, dtype, CONVERT))
    if pandas.api.types.infer_dtype(series, skipna=True) in ("string", "empty"):
        return "text", series
    try:
        return "json", series.map(lambda value: json.dumps(value, default=_item), na_action="ignore")
    except (TypeError, ValueError) as error:
        text = "%s holds values that can't be sent (%s): give it another dtype, for example with pandas.to_datetime()"
        raise TypeError(text % (what, error)) from None


def _item(value):
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy
        return value.item()
    raise TypeError("a %s" % type(value).__name__)


def _read_column(values, dtype):
    pandas = import_module("pandas")

    series = pandas.Series(values)
    if ZONED.fullmatch(dtype):
        return series.dt.tz_localize("UTC").dt.tz_convert(ZONED.fullmatch(dtype).group(1))
    if dtype not in TEXTS:
        return series
    parts = range(0, max(len(series), 1), CELLS_AT_ONCE)
    return pandas.concat([_read_texts(series[at : at + CELLS_AT_ONCE], dtype) for at in parts], ignore_index=True)


def _read_texts(series, dtype):
    cells = series.where(series.notna(), None).tolist()
    if dtype == "json":
        cells = [cell if cell is None else json.loads(cell) for cell in cells]
    # Without a dtype, pandas makes of texts what it makes of them: Python objects, or since version 3 `str`.
    return import_module("pandas").Series(cells, dtype={"str": None, "string": "string"}.get(dtype, object))


def _write_image(image, file):
    image.save(file, format="PNG", compress_level=1)


def _read_image(data, take):
    Image = import_module("PIL.Image")  # noqa: N806 - a module

    try:
        image = Image.open(io.BytesIO(bytes(data)), formats=["PNG"])
        if image.width * image.height > MAX_PIXELS:
            raise ValueError("the image has %d × %d pixels" % image.size)
        texts = sum(len(value) for value in image.info.values() if isinstance(value, (str, bytes)))
        take(image.width * image.height * PIXEL_BYTES + 2 * texts)
        image.load()
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError("invalid PNG image (%s)" % type(error).__name__) from None
    return image


_WRITERS = {"array": _write_array, "table": _write_table, "image": _write_image}
_READERS = {"array": _read_array, "table": _read_table, "image": _read_image}
