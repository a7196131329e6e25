const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const assert = require('assert');
const { execFileSync, spawn, fork } = require('child_process');
const fs = require('fs');
const http = require('http');
const zlib = require('zlib');
const crypto = require('crypto');
const path = require('path');
const os = require('os');

if (!isMainThread) {
	let sum = 0;
	for (let i = 0; i <= workerData; i++) sum += i;
	parentPort.postMessage(sum);
} else if (process.argv[2] === 'child') {
	process.on('message', (m) => { process.send(m * 2); process.disconnect(); });
} else {
	main().then(() => console.log('ok'), (e) => { console.error(e); process.exit(1); });
}

async function main() {
	const sums = await Promise.all([1, 2, 3, 4].map((n) => new Promise((done, fail) => {
		const w = new Worker(__filename, { workerData: n * 1000 });
		w.once('message', done).once('error', fail);
	})));
	assert.deepStrictEqual(sums, [500500, 2001000, 4501500, 8002000]);
	assert.strictEqual(execFileSync('tr', ['a', 'b'], { input: 'aaa' }).toString(), 'bbb');
	await new Promise((done) => spawn('true').on('exit', done));
	const child = fork(__filename, ['child']);
	child.send(21);
	assert.strictEqual(await new Promise((done) => child.once('message', done)), 42);
	const server = http.createServer((q, a) => a.end(zlib.gzipSync('hello')));
	await new Promise((done) => server.listen(0, '127.0.0.1', done));
	const body = await new Promise((done, fail) => http.get({ port: server.address().port, host: '127.0.0.1' }, (a) => {
		const parts = [];
		a.on('data', (p) => parts.push(p)).on('end', () => done(zlib.gunzipSync(Buffer.concat(parts)).toString()));
	}).on('error', fail));
	assert.strictEqual(body, 'hello');
	server.close();
	await fs.promises.writeFile('node.txt', crypto.createHash('sha256').update('x').digest('hex'));
	const dir = await fs.promises.mkdtemp(path.join(os.tmpdir(), 'n-'));
	const seen = new Promise((done) => { const w = fs.watch(dir, () => { w.close(); done(); }); });
	await fs.promises.writeFile(path.join(dir, 'a'), 'x');
	await seen;
	await new Promise((done) => crypto.pbkdf2('a', 'b', 1000, 32, 'sha256', done));
	const shared = new Int32Array(new SharedArrayBuffer(4));
	Atomics.add(shared, 0, 5);
	assert.strictEqual(Atomics.wait(shared, 0, 5, 1), 'timed-out');
	const wasm = new WebAssembly.Module(Buffer.from([0, 97, 115, 109, 1, 0, 0, 0]));
	assert(new WebAssembly.Instance(wasm));
}
