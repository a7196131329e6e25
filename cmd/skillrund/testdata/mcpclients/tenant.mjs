// A tenant's agent over HTTPS: finds its skills, and runs a script.
// Usage: NODE_EXTRA_CA_CERTS=FILE node tenant.mjs URL TOKEN. Prints {"skills": [NAME...], "stdout"}.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const [url, token] = process.argv.slice(2);
const client = new Client({ name: 'agent', version: '1' });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));
await client.listTools(); // with the schemas, by which callTool checks results
const call = async (name, given) => (await client.callTool({ name, arguments: given })).structuredContent;
const { skills } = await call('list_skills', {});
const { stdout } = await call('run_skill_script', { skill: 'calculator', script_path: 'scripts/calc.py', args: ['6*7'] });
console.log(JSON.stringify({ skills: skills.map(skill => skill.name).sort(), stdout }));
await client.close();
