// An agent that speaks MCP: finds skills, reads their instructions, calls tools, and fetches what they
// wrote. Prints a line of JSON for each command: {"name", "error"}; error is empty if it passed.
//
// Usage: node agent.mjs COMMANDS ERA COMMAND [ARGUMENT...]
// COMMANDS is the absolute path of a module with the commands: its default export is a function
// (test, agent). ERA is "legacy" or a version of the protocol. COMMAND serves MCP on its standard
// streams.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

const [commands, era, command, ...args] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: era };
const client = new Client({ name: 'agent', version: '1' }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
await client.listTools(); // with the schemas, by which callTool checks results
const skills = new SkillsClient(client);
const known = new Map();

// find does what an agent does before it uses a skill: it looks for it by its name, gets its entry,
// and reads its instructions, which the client verifies. It does so once for a skill.
async function find(name) {
  if (known.has(name)) return known.get(name);
  const { out } = await call('list_skills', { query: name });
  assert.ok(out.skills.some(skill => skill.name === name), `list_skills does not have ${name}`);
  const { skill } = await skills.get(`skill://${name}/SKILL.md`);
  const { text } = await skills.read(skill);
  const found = { entry: skill, text };
  known.set(name, found);
  return found;
}

// call calls a tool. out is its structured result, text its text, links are the resources that it links to.
async function call(tool, given) {
  const result = await client.callTool({ name: tool, arguments: given }, { timeout: 120_000 });
  return {
    failed: result.isError === true,
    out: result.structuredContent,
    text: result.content.filter(part => part.type === 'text').map(part => part.text).join('\n'),
    links: Object.fromEntries(result.content.filter(part => part.type === 'resource_link').map(part => [part.name, part.uri])),
  };
}

// run finds the skill, calls the tool and fails if the call did. RunPython needs no skill.
async function run(tool, given) {
  if (tool !== 'RunPython') await find(given.skill ?? given.skill_name);
  const result = await call(tool, given);
  assert.ok(!result.failed, result.text);
  return result;
}

// read returns the whole content of a resource, which may come in pieces.
async function read(uri) {
  const pieces = [];
  while (uri) {
    const { contents } = await client.readResource({ uri });
    pieces.push(contents[0].blob === undefined ? Buffer.from(contents[0].text) : Buffer.from(contents[0].blob, 'base64'));
    uri = contents[0]._meta?.next;
  }
  return Buffer.concat(pieces);
}

async function test(name, body) {
  const error = await body().then(() => '', error => error.stack || String(error));
  console.log(JSON.stringify({ name, error }));
}

const module = await import(pathToFileURL(commands));
await module.default(test, { find, call, run, read });
await client.close();
