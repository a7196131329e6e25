#!/usr/bin/env node
// Select, pick, flatten and convert JSON with plain Node.
//
// Exit codes: 0 done, 1 the input can't be read or doesn't fit, 2 wrong use.
'use strict';

const fs = require('node:fs');
const { parseArgs } = require('node:util');

const MAX_DEPTH = 500; // of nesting that is flattened

class InputError extends Error {}
class UsageError extends Error {}

const HELP = `usage: transform.js [FILE] [option...]

Select, pick, flatten and convert JSON. Without a file, or with -, standard
input is read. The steps run in this order:

  --select PATH      go to a part, such as data.users[*].emails[0]
  --pick A,B         of each object keep these fields; a.b reaches into objects
  --flatten          nested objects and lists become one level
  --separator TEXT   joins the names of flattened fields (default: .)
  --format FORMAT    json, jsonl or csv; else by the output's ending, else json
  --compact          JSON on one line
  --output FILE      write there instead of to standard output

  --lines            the input holds one JSON document a line
  -h, --help         print this
`;

// isObject reports whether a value is an object, not a list and not null.
function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

// has looks only at the object's own properties, not at inherited ones such as "constructor".
function has(value, name) {
  return isObject(value) && Object.prototype.hasOwnProperty.call(value, name);
}

// parsePath returns the steps of a path: {name}, {index} or {all: true}.
function parsePath(path) {
  const token = /\.?([^.[\]"]+)|\[(-?\d+)\]|\[(\*)\]|\.?\[("(?:[^"\\]|\\.)*")\]/y;
  const steps = [];
  while (token.lastIndex < path.length) {
    const at = token.lastIndex;
    const match = token.exec(path);
    if (!match || (at === 0 && path.startsWith('.'))) {
      throw new UsageError(`path ${path}: not understood at "${path.slice(at)}"`);
    }
    const [, name, index, all, quoted] = match;
    if (name !== undefined) {
      if (at > 0 && path[at] !== '.') throw new UsageError(`path ${path}: a dot is missing at "${path.slice(at)}"`);
      steps.push({ name });
    } else if (index !== undefined) steps.push({ index: Number(index) });
    else if (all !== undefined) steps.push({ all: true });
    else steps.push({ name: parseJSON(quoted, `path ${path}`, UsageError) });
  }
  if (steps.length === 0) throw new UsageError('the path is empty');
  return steps;
}

// NOTHING stands for a missing part. JSON has no undefined.
const NOTHING = undefined;

function step(value, { name, index }) {
  if (name !== undefined) return has(value, name) ? value[name] : NOTHING;
  return Array.isArray(value) ? value.at(index) : NOTHING;
}

// follow returns the part of value that the steps lead to, or NOTHING.
// After an "all" step it returns a list of the parts that exist.
function follow(value, steps) {
  for (let i = 0; i < steps.length; i++) {
    if (steps[i].all) {
      if (!Array.isArray(value)) return NOTHING;
      const rest = steps.slice(i + 1);
      const found = value.map((item) => follow(item, rest)).filter((item) => item !== NOTHING);
      // A second [*] makes one list, not a list of lists.
      return rest.some((s) => s.all) ? found.flat() : found;
    }
    value = step(value, steps[i]);
    if (value === NOTHING) return NOTHING;
  }
  return value;
}

function select(value, path) {
  const found = follow(value, parsePath(path));
  if (found === NOTHING) throw new InputError(`--select ${path}: the document has no such part`);
  return found;
}

// each applies change to an object, or to every object of a list.
function each(value, option, change) {
  if (isObject(value)) return change(value);
  if (Array.isArray(value) && value.every(isObject)) return value.map(change);
  throw new InputError(`${option} needs an object or a list of objects`);
}

function pick(value, fields) {
  const wanted = fields.split(',').map((f) => f.trim());
  const paths = wanted.map((name) => [name, parsePath(name)]);
  const seen = new Set();
  const picked = each(value, '--pick', (object) => {
    // fromEntries also defines a field named __proto__; an assignment would not.
    const entries = paths.map(([name, steps]) => [name, has(object, name) ? object[name] : follow(object, steps)]);
    const there = entries.filter(([, found]) => found !== NOTHING);
    there.forEach(([name]) => seen.add(name));
    return Object.fromEntries(there);
  });
  const absent = wanted.filter((name) => !seen.has(name));
  const any = isObject(value) || value.length > 0;
  if (any && absent.length > 0) throw new InputError(`--pick ${absent.join(',')}: no object has it`);
  return picked;
}

function flatten(value, separator) {
  return each(value, '--flatten', (object) => {
    const entries = [];
    const walk = (part, name, depth) => {
      if (depth > MAX_DEPTH) throw new InputError(`--flatten: nested more than ${MAX_DEPTH} deep`);
      const inner = typeof part === 'object' && part !== null ? Object.entries(part) : [];
      // An empty object or list stays as it is.
      if (inner.length === 0) entries.push([name, part]);
      for (const [key, child] of inner) walk(child, name + separator + key, depth + 1);
    };
    for (const [key, child] of Object.entries(object)) walk(child, key, 1);
    const flat = Object.fromEntries(entries);
    if (Object.keys(flat).length < entries.length) {
      throw new InputError('--flatten: two fields get the same name; choose another --separator');
    }
    return flat;
  });
}

function cell(value) {
  if (value === undefined || value === null) return '';
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function toCSV(value) {
  const rows = isObject(value) ? [value] : value;
  if (!Array.isArray(rows) || !rows.every(isObject)) throw new InputError('csv needs a list of objects');
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = rows.map((row) => columns.map((c) => cell(has(row, c) ? row[c] : null)).join(','));
  return [columns.map(cell).join(','), ...lines].map((line) => line + '\n').join('');
}

function print(value, format, compact) {
  if (format === 'csv') return toCSV(value);
  if (format === 'jsonl') {
    return (Array.isArray(value) ? value : [value]).map((item) => JSON.stringify(item) + '\n').join('');
  }
  return JSON.stringify(value, null, compact ? 0 : 2) + '\n';
}

function parseJSON(text, where, Kind) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Kind(`${where}: not JSON: ${error.message}`);
  }
}

function read(file, lines) {
  const name = file === '-' ? 'standard input' : file;
  const bytes = fs.readFileSync(file === '-' ? 0 : file);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new InputError(`${name}: not UTF-8`);
  }
  if (!lines && !/\.(jsonl|ndjson)$/i.test(file)) return parseJSON(text, name, InputError);
  return text
    .split('\n')
    .map((line, i) => [line, i + 1])
    .filter(([line]) => line.trim() !== '')
    .map(([line, number]) => parseJSON(line, `${name} line ${number}`, InputError));
}

// write replaces the file only when all is written, so a failed run leaves no partial file.
function write(file, text) {
  const part = `${file}.part`;
  try {
    fs.writeFileSync(part, text);
    fs.renameSync(part, file);
  } catch (error) {
    fs.rmSync(part, { force: true });
    throw error;
  }
}

function options(argv) {
  const text = { type: 'string' };
  const flag = { type: 'boolean' };
  const known = {
    select: text, pick: text, flatten: flag, separator: text, format: text, compact: flag,
    output: text, lines: flag, help: { ...flag, short: 'h' },
  };
  let parsed;
  try {
    parsed = parseArgs({ args: argv, options: known, allowPositionals: true });
  } catch (error) {
    throw new UsageError(error.message);
  }
  const { values, positionals } = parsed;
  if (positionals.length > 1) throw new UsageError('more than one input file');
  const ending = /\.(csv|jsonl|ndjson)$/i.exec(values.output ?? '');
  const byEnding = { csv: 'csv', jsonl: 'jsonl', ndjson: 'jsonl' }[ending?.[1].toLowerCase()] ?? 'json';
  const format = values.format ?? byEnding;
  if (!['json', 'jsonl', 'csv'].includes(format)) throw new UsageError(`--format ${format}: json, jsonl or csv`);
  return { ...values, format, file: positionals[0] ?? '-' };
}

function run(argv) {
  const o = options(argv);
  if (o.help) return process.stdout.write(HELP);
  let value = read(o.file, o.lines);
  if (o.select !== undefined) value = select(value, o.select);
  if (o.pick !== undefined) value = pick(value, o.pick);
  if (o.flatten) value = flatten(value, o.separator ?? '.');
  const text = print(value, o.format, o.compact);
  if (o.output === undefined) return process.stdout.write(text);
  write(o.output, text);
  const size = Array.isArray(value) ? `${value.length} items` : '1 value';
  return console.log(`${size} written to ${o.output} as ${o.format}`);
}

try {
  run(process.argv.slice(2));
} catch (error) {
  const fault = error instanceof UsageError ? 2 : 1;
  const known = fault === 2 || error instanceof InputError;
  // The message of a system error names the path. Any other error is a bug of this script.
  if (!known && error.syscall === undefined && !(error instanceof RangeError)) throw error;
  console.error(`transform: ${error.message}`);
  process.exitCode = fault;
}
