// Plays a whole task as an agent would: load a table, keep some of its rows with one skill, draw them with
// another, and fetch the picture. Then it goes on in a new connection. Prints what it saw as JSON.
//
// Usage: node task.mjs ERA URL
//        node task.mjs ERA COMMAND [ARGUMENT...]
// ERA is "legacy" or a version of the protocol. URL is an endpoint, COMMAND serves MCP on its standard
// streams.
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, server, ...args] = process.argv.slice(2);
const overHTTP = server.startsWith('http:');

async function connect() {
  const mode = era === 'legacy' ? 'legacy' : { pin: era };
  const client = new Client({ name: 'task', version: '1' }, { versionNegotiation: { mode } });
  const transport = overHTTP
    ? new StreamableHTTPClientTransport(new URL(server))
    : new StdioClientTransport({ command: server, args, env: process.env, stderr: 'inherit' });
  await client.connect(transport);
  await client.listTools(); // with the schemas, by which callTool checks results
  return client;
}

// Where each request stands alone, the agent names the session: more is added to the arguments.
let more = {};
async function call(client, name, given) {
  const result = await client.callTool({ name, arguments: { ...given, ...more } });
  assert.ok(!result.isError, JSON.stringify(result));
  const links = result.content.filter(part => part.type === 'resource_link');
  return { out: result.structuredContent, links: Object.fromEntries(links.map(link => [link.name, link])) };
}

let client = await connect();
const table = 'month,city,sum\n5,Rome,3\n5,Bern,9\n6,Rome,7\n7,Rome,5\n';
const loaded = await call(client, 'write_file', { path: 'data/sales.csv', text: table });
const id = loaded.out.session;
if (overHTTP && era !== 'legacy') more = { session: id };

for (const skill of ['csv-processor', 'plotter']) {
  await client.callTool({ name: 'activate_skill', arguments: { skill } });
}
const command = `python {baseDir}/scripts/process.py data/sales.csv --filter "city = 'Rome'" --output rome.csv`;
const filtered = await call(client, 'bash', { skill: 'csv-processor', command });
const drawn = await call(client, 'run_skill_script', { skill: 'plotter', script_path: 'scripts/plot.py', args: ['rome.csv', 'chart.png'] });
const { contents } = await client.readResource({ uri: drawn.links['chart.png'].uri });
const read = await call(client, 'read_file', { path: 'chart.png', encoding: 'base64' });
const removed = await call(client, 'RunPython', { code: "import os; os.remove('rome.csv')" });
await client.close();

client = await connect();
more = { session: id };
const again = await call(client, 'list_files', {});
await client.close();

console.log(
  JSON.stringify({
    id,
    table: loaded.links,
    filtered: filtered.out.session,
    drawn: drawn.out.session,
    picture: contents[0],
    read: read.out,
    removed: Object.keys(removed.links),
    again: again.out,
  }),
);
