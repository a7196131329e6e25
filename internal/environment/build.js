// Runs npm inside a build's sandbox.
//
// The sandbox has no network. What npm asks of its registry comes here, to a server on the
// sandbox's own loopback, and goes as a line of JSON to standard output; the daemon answers on
// standard input. Nothing here is trusted by the daemon.
'use strict';
const child = require('child_process');
const fs = require('fs');
const http = require('http');

const TARGET = '/workspace/env';
const HEAD = 9; // bytes: id (32 bits), kind, length (32 bits), big endian
const [port, npm, scripts] = JSON.parse(process.argv[2]);

const answers = new Map();
let last = 0;

function ask(req, res) {
  const id = ++last;
  answers.set(id, res);
  // npm no longer wants the answer: the daemon ends the download.
  res.on('close', () => { if (answers.delete(id)) fs.writeSync(1, JSON.stringify({ drop: id }) + '\n'); });
  fs.writeSync(1, JSON.stringify({ id, path: req.url }) + '\n');
}

function frame(id, kind, data) {
  const res = answers.get(id);
  if (res === undefined) return;
  if (kind === 'h') {
    const head = JSON.parse(data);
    const fields = { 'Content-Type': head.type };
    if (head.length >= 0) fields['Content-Length'] = head.length;
    res.writeHead(head.status, fields);
  } else if (kind === 'd') {
    res.write(data);
  } else {
    answers.delete(id);
    // A body that breaks off must not look like a whole one.
    if (data.length > 0) res.destroy(); else res.end();
  }
}

let pending = [];
let size = 0;
let need = HEAD;
process.stdin.on('data', (data) => {
  pending.push(data);
  size += data.length;
  while (size >= need) {
    const all = pending.length === 1 ? pending[0] : Buffer.concat(pending);
    const whole = HEAD + all.readUInt32BE(5);
    if (size >= whole) {
      frame(all.readUInt32BE(0), String.fromCharCode(all[4]), all.subarray(HEAD, whole));
      pending = [all.subarray(whole)];
      size -= whole;
      need = HEAD;
    } else {
      pending = [all];
      need = whole;
    }
  }
});

fs.mkdirSync('/workspace/tmp', { recursive: true });
fs.mkdirSync(TARGET + '/node_modules', { recursive: true });
const locked = fs.existsSync('/opt/build/package-lock.json');
for (const name of ['package.json', 'package-lock.json']) {
  if (fs.existsSync('/opt/build/' + name)) fs.copyFileSync('/opt/build/' + name, TARGET + '/' + name);
}
const args = [npm, locked ? 'ci' : 'install', '--registry', `http://127.0.0.1:${port}/`, '--cache', '/workspace/tmp/cache',
  '--userconfig', '/opt/build/user.npmrc', '--globalconfig', '/opt/build/global.npmrc', '--no-audit', '--no-fund', '--no-update-notifier', '--no-progress',
  '--color=false', '--loglevel=warn', '--fetch-retries=0', '--fetch-timeout=600000', '--git=git-is-off', '--include=dev',
  '--include=optional', '--include=peer', scripts ? '--foreground-scripts' : '--ignore-scripts'];
// Names the packages whose scripts npm has skipped, by the lock that npm leaves in node_modules.
function reportScripts() {
  const lock = `${TARGET}/node_modules/.package-lock.json`;
  if (!fs.existsSync(lock)) return;
  const all = Object.entries(JSON.parse(fs.readFileSync(lock)).packages ?? {});
  const names = all.filter(([, p]) => p.hasInstallScript).map(([at]) => at.slice(at.lastIndexOf('node_modules/') + 13));
  if (names.length > 0) fs.writeSync(2, `skillrun: install scripts did not run, because environments.install_scripts is off: ${names.join(', ')}\n`);
}

const server = http.createServer(ask).listen(port, '127.0.0.1', () => {
  const run = child.spawn(process.execPath, args, { cwd: TARGET, stdio: ['ignore', 2, 2] });
  run.on('error', (err) => { fs.writeSync(2, `npm error ${err.message}\n`); process.exit(1); });
  // Files of npm itself: they name this build's server.
  run.on('close', (code) => {
    if (code === 0 && !scripts) reportScripts();
    for (const name of ['package.json', 'package-lock.json', 'node_modules/.package-lock.json']) fs.rmSync(`${TARGET}/${name}`, { force: true });
    process.exit(code === 0 ? 0 : 1);
  });
});
server.on('error', (err) => { fs.writeSync(2, `npm error ${err.message}\n`); process.exit(1); });
