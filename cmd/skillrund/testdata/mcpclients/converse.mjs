// Has a long conversation as an agent would: rounds of calls that write, run, list and read, and beside them one
// call after the other that runs until the test releases its program. Prints a line after each round and each
// released call. When standard input ends it prints "ending", makes no further calls, and prints what it has seen as
// JSON.
//
// Usage: node converse.mjs ERA URL
//        node converse.mjs ERA COMMAND [ARGUMENT...]
// ERA is "legacy" or a version of the protocol. URL is an endpoint, COMMAND serves MCP on its standard
// streams.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, server, ...args] = process.argv.slice(2);
const overHTTP = server.startsWith('http:');
const client = new Client({ name: 'converse', version: '1' }, { versionNegotiation: { mode: era === 'legacy' ? 'legacy' : { pin: era } } });
const transport = overHTTP
  ? new StreamableHTTPClientTransport(new URL(server))
  : new StdioClientTransport({ command: server, args, env: process.env, stderr: 'inherit' });
await client.connect(transport);
await client.listTools(); // with the schemas, by which callTool checks results

let over = false;
process.stdin.on('end', () => {
  over = true;
  console.log('ending');
}).resume();

const timeout = 600_000; // milliseconds; a daemon may start slowly
const seen = { rounds: 0, released: 0, errors: [], sessions: [] };
let more = {}; // where each request stands alone, the agent names the session

async function call(name, given) {
  const result = await client.callTool({ name, arguments: { ...more, ...given } }, { timeout });
  assert.ok(!result.isError, `${name}: ${JSON.stringify(result)}`);
  return result.structuredContent;
}

async function round(n) {
  const { session } = await call('write_file', { path: `${n}.txt`, text: `${n}` });
  if (!seen.sessions.includes(session)) seen.sessions.push(session);
  if (overHTTP && era !== 'legacy') more = { session };
  const ran = await call('run_skill_script', { skill: 'waits', script_path: 'scripts/list.py' });
  assert.ok(ran.stdout.includes(`'${n}.txt'`), ran.stdout);
  const { files } = await call('list_files', { limit: 1000 });
  assert.equal(files.filter(file => file.path.endsWith('.txt')).length, n + 1);
  assert.equal((await call('read_file', { path: 'runs' })).text, 'x'.repeat(n + 1)); // each program ran once
  await client.listTools(undefined, { timeout });
  await client.readResource({ uri: 'skill://waits/SKILL.md' }, { timeout });
}

async function repeat(count, what, f) {
  for (let n = 0; !over && seen.errors.length === 0; n++) {
    try {
      await f(n);
      seen[count]++;
      console.log(count);
    } catch (error) {
      seen.errors.push(`${what} ${n}: ${error}`);
      console.log(`${what} ${n}: ${error} ${error.cause ?? ""}`);
    }
  }
}

await Promise.all([
  repeat('rounds', 'round', round),
  repeat('released', 'waiting call', async () => {
    const { stdout } = await call('run_skill_script', { skill: 'waits', script_path: 'scripts/wait.py', timeout: 600, session: 'none' });
    assert.equal(stdout, 'ready\nreleased\n');
  }),
]);
console.log(JSON.stringify(seen));
await client.close();
