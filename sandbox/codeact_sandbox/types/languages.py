"""Languages of blocks: the command in the sandbox that runs each."""

from __future__ import annotations

import json
import urllib.parse
from dataclasses import dataclass


@dataclass(frozen=True)
class Language:
    name: str  # its name, in lower case
    command: tuple[str, ...]  # the command in the image; the file name is appended
    extension: str  # extension of a block's file, without a dot
    aliases: tuple[str, ...] = ()  # other labels for it, in lower case
    # the beginnings of a comment, after which `filename:` may follow
    comments: tuple[str, ...] = ("#",)


_SLASHES = ("//", "/*")

# Strips the types of each .ts file that is loaded: with esbuild, or by Node itself, which can do it from 22.13 on.
_STRIP_TYPES = """\
import * as m from "node:module"; import { spawnSync } from "node:child_process"; import { readFileSync } from "node:fs";
const strip = (source) => {
  const built = spawnSync("esbuild", ["--loader=ts", "--log-level=error"], { input: source, encoding: "utf8" });
  if (built.error && m.stripTypeScriptTypes) return m.stripTypeScriptTypes(source, { mode: "transform" });
  if (built.status !== 0) throw new SyntaxError(built.stderr || String(built.error));
  return built.stdout;
};
export async function load(url, context, next) {
  if (!/\\.[mc]?ts$/.test(url)) return next(url, context);
  const source = strip(readFileSync(new URL(url), "utf8"));
  const old = /\\brequire\\(/.test(source) && !/^import\\s/m.test(source);
  const head = 'import { createRequire as $require } from "node:module"; const require = $require(import.meta.url); ';
  return { format: "module", source: old ? head + source : source, shortCircuit: true };
}
"""
_NODE_TYPES = (
    "node",
    "--no-warnings",
    "--import",
    "data:text/javascript,"
    + urllib.parse.quote(
        'import * as m from "node:module"; import { spawnSync } from "node:child_process";'
        'if (!m.stripTypeScriptTypes && spawnSync("esbuild", ["--version"]).error) {'
        'console.error("TypeScript needs Node.js 22.13 or later, or the command esbuild; here is Node.js " + process.version);'
        f"process.exit(127); }} m.register({json.dumps('data:text/javascript,' + urllib.parse.quote(_STRIP_TYPES))});"
    ),
)

_BUILT_IN = (
    Language("python", ("python3",), "py", ("py", "python3", "py3", "ipython", "ipython3")),
    Language("sh", ("sh",), "sh", ("shell",)),
    Language("bash", ("bash",), "sh"),
    Language("zsh", ("zsh",), "zsh"),
    Language("fish", ("fish",), "fish"),
    Language("powershell", ("pwsh", "-File"), "ps1", ("pwsh", "ps1"), ("#", "<#")),
    Language("javascript", ("node",), "js", ("js", "node", "nodejs"), _SLASHES),
    Language("typescript", _NODE_TYPES, "ts", ("ts",), _SLASHES),
    Language("r", ("Rscript",), "R", ("rscript",)),
    Language("julia", ("julia",), "jl", ("jl",)),
    Language("ruby", ("ruby",), "rb", ("rb",)),
    Language("perl", ("perl",), "pl", ("pl",)),
    Language("php", ("php",), "php", (), (*_SLASHES, "#", "<!--")),
    Language("lua", ("lua",), "lua", (), ("--",)),
    Language("go", ("go", "run"), "go", ("golang",), _SLASHES),
    Language("java", ("java",), "java", (), _SLASHES),
    Language("swift", ("swift",), "swift", (), _SLASHES),
    Language("haskell", ("runghc",), "hs", ("hs",), ("--",)),
    Language("elixir", ("elixir",), "exs", ("exs",)),
    Language("octave", ("octave",), "m", (), ("%", "#")),
)

# The built-in languages by label; whether the image has the command is known when a block runs.
LANGUAGES: dict[str, Language] = {
    **{label: language for language in _BUILT_IN for label in (language.name, *language.aliases)},
    **{f"python3.{minor}": _BUILT_IN[0] for minor in range(100)},
}


def find_language(label: str) -> Language | None:
    return LANGUAGES.get(label.strip().lower())


def labels() -> set[str]:
    return {label for language in _BUILT_IN for label in (language.name, *language.aliases)}
