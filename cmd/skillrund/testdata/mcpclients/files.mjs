// Gives a script arguments and files over MCP, reads its artifact, and gives it to the next call.
// Prints what it saw as JSON.
//
// Usage: node files.mjs ERA COMMAND [ARGUMENT...]
// ERA is "legacy" or a version of the protocol. COMMAND serves MCP on its standard streams.
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [era, command, ...args] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: era };
const client = new Client({ name: 'files', version: '1' }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
await client.listTools(); // with the schemas, by which callTool checks results

const call = (name, given) => client.callTool({ name, arguments: given });
const script = { skill: 'copier', script_path: 'scripts/join.py' };
const run = await call('run_skill_script', {
  ...script,
  args: ['a.csv', 'b.bin', 'c.svg', 'out/all.bin'],
  files: [
    { path: 'a.csv', text: 'a,b' },
    { path: 'b.bin', base64: 'AP8=' },
    { path: 'c.svg', uri: 'skill://shapes/assets/square.svg' },
    { path: 'out/keep', text: '' },
  ],
});
const links = run.content.filter(part => part.type === 'resource_link');
const { contents } = await client.readResource({ uri: links[0].uri });
const code = "import base64; print(base64.b64encode(open('copy', 'rb').read()).decode())";
const next = await call('RunPython', { code, files: [{ path: 'copy', uri: links[0].uri }] });
const wrong = await call('run_skill_script', { ...script, files: [{ path: 'x' }] });

console.log(
  JSON.stringify({
    structured: run.structuredContent,
    links,
    blob: contents[0].blob,
    next: next.content[0].text,
    wrong: wrong.content[0].text,
  }),
);
await client.close();
