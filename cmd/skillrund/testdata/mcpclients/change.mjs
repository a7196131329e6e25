// Changes a skill while a host holds its entry, and prints what the official client then accepts.
//
// Usage: node change.mjs ERA FOLDER COMMAND [ARGUMENT...]
// ERA is "legacy" or a version of the protocol. FOLDER is the folder of the skill. COMMAND serves it,
// and the skill "hidden", over MCP on its standard streams.
import { writeFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { SkillsClient } from '@modelcontextprotocol/client/ext/skills';

const [era, folder, command, ...args] = process.argv.slice(2);
const mode = era === 'legacy' ? 'legacy' : { pin: era };
const client = new Client({ name: 'change', version: '1' }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }));
const skills = new SkillsClient(client);

// read returns "verified", or why the client refuses the file.
const read = (entry, path) => skills.read(entry, path).then(file => (file.verified ? 'verified' : 'not verified'), error => error.reason ?? String(error));

const root = `skill://${basename(folder)}`;
const uri = `${root}/SKILL.md`;
const { skill: held } = await skills.get(uri);
await writeFile(`${folder}/references/guide.md`, '# Changed\n');
await writeFile(`${folder}/references/new.md`, 'New.\n');
const digestOf = (entry, path) => entry.resources.find(resource => resource.uri.endsWith(path))?.digest;
let fresh;
const end = Date.now() + 300_000; // milliseconds; the daemon takes less than a second
do {
  ({ skill: fresh } = await skills.get(uri));
  if (Date.now() > end) throw new Error('the entry did not change');
} while (!digestOf(fresh, 'new.md') || digestOf(fresh, 'guide.md') === digestOf(held, 'guide.md'));

const { resources } = await skills.readDirectory(`${root}/references`);
const { skills: listed } = await skills.list();
const { skill: hidden } = await skills.get('skill://hidden/SKILL.md');
console.log(
  JSON.stringify({
    heldChanged: await read(held, 'references/guide.md'),
    heldNew: await read(held, 'references/new.md'),
    heldSame: await read(held, 'SKILL.md'),
    freshChanged: await read(fresh, 'references/guide.md'),
    freshNew: await read(fresh, 'references/new.md'),
    directory: resources.map(resource => resource.name),
    hiddenListed: listed.some(entry => entry.uri === hidden.uri),
    hidden: await read(hidden, 'SKILL.md'),
  }),
);
await client.close();
