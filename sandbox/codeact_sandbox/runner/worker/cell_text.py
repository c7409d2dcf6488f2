"""The text of a cell: what is special about it, and its translation to Python where IPython is not installed."""

import ast
import re

from . import imports

# A line that Python can't parse and a notebook can; a prompt that was copied with the code.
_SPECIAL = re.compile(r"^[ \t]*(?:[%!?]|>>> |In \[\d+\]:)|^[^#\n]*=[ \t]*[%!]|^[^#\n]*\?[ \t]*;?[ \t]*$", re.MULTILINE)
# Names that a cell of one line may begin with as if it were a command.
_COMMAND_NAMES = frozenset(
    "alias autoawait autocall autoindent automagic bookmark cat cd clear colors conda config cp debug dhist dirs doctest_mode "
    "env hist history ldir less lf lk ll load load_ext loadpy logoff logon logstart logstate logstop ls lsmagic lx macro magic "
    "mamba man matplotlib mkdir more mv notebook page pastebin pdb pdef pdoc pfile pinfo pinfo2 pip popd pprint precision "
    "prun psearch psource pushd pwd pycat pylab quickref recall rehashx reload_ext rep rerun reset reset_selective rm rmdir "
    "run save sc set_env store sx system tb time timeit unalias unload_ext uv who who_ls whos xdel xmode".split()
)
_FIRST_WORD = re.compile(rb"[ \t]*([a-z_0-9]+)(?![\w(.\[])[ \t]*(?!=[^=]|[-+*/%&|^]=)")
_BLOCK_MAGIC = re.compile(r"%%([\w.]+)[ \t]*(.*)")
_LINE_MAGIC = re.compile(r"%([\w.]+)[ \t]*(.*)", re.DOTALL)
_ASSIGNED = re.compile(r"([\w.,\[\]'\" \t*()]+?=)[ \t]*([%!])(.*)", re.DOTALL)
_PROMPT = re.compile(r"^(?:>>>|\.\.\.)(?: |$)|^In \[\d+\]: ?|^ *\.\.\.+: ?", re.MULTILINE)
_QUOTES = re.compile(r"\"{3}|'{3}")
_COMMAND = re.compile(r"[ \t]*[!%?]")


def is_command(code, namespace, builtin_names):
    """Return whether a cell is one line that begins with the name of a magic, and no variable has this name."""
    if len(code) > 1000 or b"\n" in code.strip():
        return False
    match = _FIRST_WORD.match(code)
    word = match and match.group(1).decode()
    return bool(match) and word in _COMMAND_NAMES and word not in namespace and word not in builtin_names


def is_special(text):
    """Return whether a cell that is not Python may be one of a notebook."""
    return bool(_SPECIAL.search(text)) or text.lstrip("\n")[:1] in (" ", "\t")


def is_silenced(code, last):
    """Return whether the last expression of a cell is followed by a semicolon."""
    if b";" not in code:
        return False
    lines = re.split(b"\r\n|\r|\n", code)
    return lines[last.end_lineno - 1][last.end_col_offset :].lstrip(b" \t)\\").startswith(b";")


def translate(text):
    """Translate a cell to Python: magics, commands and questions become calls of `get_ipython()`."""
    text = _without_indentation(_PROMPT.sub("", text) if re.match(r"\s*(>>>|In \[)", text) else text)
    stripped = text.lstrip("\n")
    match = _BLOCK_MAGIC.match(stripped)
    if match:
        _, _, body = stripped.partition("\n")
        call = "get_ipython().run_cell_magic(%r, %r, %r)" % (match.group(1), match.group(2).strip(), body)
        return "\n" * (len(text) - len(stripped)) + call + "\n"
    return "".join(map(_translated, _logical_lines(text)))


def _translated(line):
    indent = line[: len(line) - len(line.lstrip(" \t"))]
    code = line[len(indent) :]
    text = code.rstrip("\n")
    joined = re.sub(r"\\\n[ \t]*", " ", text)
    assigned = _ASSIGNED.fullmatch(joined)
    if text.startswith("!"):
        call = _command(joined)
    elif text.startswith("%"):
        call = _magic(joined)
    elif assigned and assigned.group(1)[-2:] not in ("==", "!=", "<=", ">="):
        rest = assigned.group(3)
        is_magic = assigned.group(2) == "%"
        call = assigned.group(1) + " " + (_magic("%" + rest) if is_magic else "get_ipython().getoutput(%r)" % rest)
    else:
        return line
    # The following lines keep their numbers.
    return indent + call + "\n" * max(1, line.count("\n"))


def _command(text):
    if text.startswith("!!"):
        return "get_ipython().getoutput(%r)" % text[2:].strip()
    return "get_ipython().system(%r)" % text[1:].strip()


def _magic(text):
    match = _LINE_MAGIC.match(text)
    if not match:
        return text
    return "get_ipython().run_line_magic(%r, %r)" % (match.group(1), match.group(2).strip())


def _logical_lines(text):
    """Split a cell into lines; a backslash continues a command, and what is in a string of several lines stays together."""
    found, quote = [], None
    for line in text.splitlines(True):
        if quote or (found and found[-1].endswith("\\\n")):
            found[-1] += line
        else:
            found.append(line)
        for mark in _QUOTES.findall(line) if quote or not _COMMAND.match(line) else ():
            quote = mark if quote is None else None if mark == quote else quote
    return found


def _without_indentation(text):
    """Remove the indentation of the first line from all lines, if it is indented."""
    first = re.match(r"\n*([ \t]+)(?=\S)", text)
    return re.sub("(?m)^" + first.group(1), "", text) if first else text


def align(tree, text, translated):
    """Give the nodes of a translated cell the lines of the original, and no columns where its line was translated."""
    before, after = text.rstrip("\n").split("\n"), translated.rstrip("\n").split("\n")
    if before == after:
        return
    numbers = _line_numbers(before, after)
    for node in ast.walk(tree):
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is None:
            continue
        node.lineno, same = numbers[min(first, len(numbers)) - 1]
        node.end_lineno, same_end = numbers[min(last, len(numbers)) - 1]
        if not (same and same_end):
            # Tracebacks show no carets below a whole line.
            node.col_offset = 0
            node.end_col_offset = len(before[node.end_lineno - 1].encode())


def _line_numbers(before, after):
    """Return (line of the original, whether it is the same) for each translated line, counted from 1."""
    if len(before) == len(after):
        return [(index + 1, old == new) for index, (new, old) in enumerate(zip(after, before))]
    found = []
    for kind, start, end, new_start, new_end in (
        imports.own_import("difflib").SequenceMatcher(None, before, after, False).get_opcodes()
    ):
        last = min(max(end, 1), len(before)) - 1
        found += [(min(start + index, last) + 1, kind == "equal") for index in range(new_end - new_start)]
    return found
