// The entry: which page it is.
import { place } from "./data.js";
import { openList } from "./list.js";
import { openRun } from "./run.js";

if (place().kind === "run") openRun();
else openList();
