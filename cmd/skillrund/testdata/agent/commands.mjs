// What an agent does with the skills here and with those that come with skillrun.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const people = 'name,age,city\nAda,36,London\nLinus,12,Helsinki\nGrace,45,New York\n';
const orders = JSON.stringify({ orders: [{ id: 1, customer: { name: 'Ada' } }, { id: 2, customer: { name: 'Zoë' } }] });
const results = JSON.stringify({ title: 'Größen & more', results: { small: 10, large: 90 } });

// repository makes a repository with two commits, and returns a bundle of it and its files.
function repository() {
  const dir = mkdtempSync(join(tmpdir(), 'repository-'));
  const git = (...args) => execFileSync('git', ['-C', dir, '-c', 'user.name=Ada', '-c', 'user.email=ada@example.com', ...args]);
  git('init', '-q', '-b', 'main');
  git('commit', '-q', '--allow-empty', '-m', 'begin');
  git('commit', '-q', '--allow-empty', '-m', 'grow: naïve');
  git('bundle', 'create', '-q', 'history.bundle', '--all');
  const bundle = readFileSync(join(dir, 'history.bundle'));
  const files = readdirSync(join(dir, '.git'), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && !entry.parentPath.includes('hooks'))
    .map(entry => join(entry.parentPath, entry.name))
    .map(path => ({ path: `project${path.slice(dir.length)}`, base64: readFileSync(path).toString('base64') }));
  rmSync(dir, { recursive: true });
  return { bundle: bundle.toString('base64'), files };
}

const base64 = text => Buffer.from(text).toString('base64');
const pngSize = data => [data.subarray(1, 4).toString(), data.readUInt32BE(16), data.readUInt32BE(20)];

export default async function (test, { find, call, run, read }) {
  const text = async uri => (await read(uri)).toString();
  const script = (skill, script_path, args, files = [], more = {}) => run('run_skill_script', { skill, script_path, args, files, ...more });
  const bash = (skill, command, files = [], more = {}) => run('bash', { skill, command, files, ...more });

  await shipped();
  await documents();
  await reports();
  await others();

  async function shipped() {
    await test('an argument with blanks', async () => {
      const { out } = await script('calculator', 'scripts/calc.py', ['price * (1 + rate)', '--var', 'price=80', '--var', 'rate=0.19']);
      assert.equal(out.stdout, '95.2\n');
    });
    await test('JSON to JSON on the standard streams', async () => {
      const { out } = await script('calculator', 'scripts/calc.py', ['--format', 'json'], [], { arguments: { expression: 'r ** 2', variables: { r: 3 } } });
      assert.equal(JSON.parse(out.stdout).result, '9');
    });
    await test('a CSV file in, a CSV file out', async () => {
      const files = [{ path: 'people.csv', text: people }];
      const { links } = await script('csv-processor', 'scripts/process.py', ['people.csv', '--filter', 'age > 30', '--output', 'adults.csv'], files);
      assert.equal(await text(links['adults.csv']), 'name,age,city\nAda,36,London\nGrace,45,New York\n');
    });
    await test('5 MB of CSV', async () => {
      const lines = Array.from({ length: 50_000 }, (_, i) => `${i},${'a long text '.repeat(9)}\n`);
      const files = [{ path: 'big.csv', text: `id,text\n${lines.join('')}` }];
      assert.ok(files[0].text.length > 5e6);
      const { links } = await script('csv-processor', 'scripts/process.py', ['big.csv', '--filter', 'id < 40000', '--output', 'part.csv'], files);
      assert.equal(await text(links['part.csv']), `id,text\n${lines.slice(0, 40_000).join('')}`);
    });
    await test('a redirect, and the file in a second command of the line', async () => {
      const line = 'python {baseDir}/scripts/process.py people.csv --columns name > names.csv && python {baseDir}/scripts/process.py names.csv --format json';
      const { out, links } = await bash('csv-processor', line, [{ path: 'people.csv', text: people }]);
      assert.deepEqual(JSON.parse(out.stdout).map(row => row.name), ['Ada', 'Linus', 'Grace']);
      assert.equal(await text(links['names.csv']), 'name\nAda\nLinus\nGrace\n');
    });
    await test('statistics of a table', async () => {
      const { out } = await bash('data-analysis', 'python {baseDir}/scripts/stats.py people.csv --format json', [{ path: 'people.csv', text: people }]);
      assert.match(out.stdout, /"age"/);
      assert.equal(JSON.parse(out.stdout).rows, 3);
    });
    await test('a chart as PNG', async () => {
      const args = ['people.csv', '--type', 'bar', '--x', 'name', '--y', 'age', '--output', 'chart.png'];
      const { links } = await script('data-analysis', 'scripts/visualize.py', args, [{ path: 'people.csv', text: people }]);
      const [kind, width, height] = pngSize(await read(links['chart.png']));
      assert.ok(kind === 'PNG' && width > 100 && height > 100, `${kind} ${width} ${height}`);
    });
    await test('a pipeline of programs that the skill allows', async () => {
      const { out } = await bash('text-tools', "grep -v '^#' log.txt | sort | uniq -c | sort -rn | head -n 1", [{ path: 'log.txt', text: '# log\nb\na\nb\n' }]);
      assert.equal(out.stdout, '      2 b\n');
    });
    await test('names beyond ASCII', async () => {
      const { out, links } = await script('text-tools', 'scripts/text.sh', ['dedupe', 'naïve – 報告.txt', '--output', 'résumé.txt'], [{ path: 'naïve – 報告.txt', text: 'ä\nß\nä\n' }]);
      assert.equal(await text(links['résumé.txt']), 'ä\nß\n', out.stderr);
    });
    await test('the log of a bundle', async () => {
      const line = 'bash {baseDir}/scripts/unpack.sh history.bundle && git -C /tmp/repo log --format=%an:%s';
      const { out } = await bash('git-analyzer', line, [{ path: 'history.bundle', base64: repository().bundle }]);
      assert.equal(out.stdout, 'Ada:grow: naïve\nAda:begin\n');
    });
    await test('the log of a folder that was sent', async () => {
      const { out } = await script('git-analyzer', 'scripts/summary.sh', ['project'], repository().files);
      assert.match(out.stdout, /commits: 2\n/);
    });
    await test('a script of node', async () => {
      const { out } = await bash('json-transform', 'node {baseDir}/scripts/transform.js orders.json --select "orders[*]" --pick id,customer.name', [{ path: 'orders.json', text: orders }]);
      assert.deepEqual(JSON.parse(out.stdout), [{ id: 1, 'customer.name': 'Ada' }, { id: 2, 'customer.name': 'Zoë' }]);
    });
    await test('standard input from a file', async () => {
      const { out } = await bash('json-transform', 'node {baseDir}/scripts/transform.js --select "orders[*].id" < orders.json', [{ path: 'orders.json', text: orders }]);
      assert.deepEqual(JSON.parse(out.stdout), [1, 2]);
    });
  }

  async function documents() {
    const blank = 'skill://forms/assets/blank.form';
    let filled, parts;
    await test('a module and a file of the skill', async () => {
      const { out, links } = await script('forms', 'scripts/extract_fields.py', ['input.form', 'fields.json'], [{ path: 'input.form', uri: blank }]);
      assert.equal(out.stdout, 'Found 2 fields, saved to fields.json\n');
      assert.deepEqual(JSON.parse(await text(links['fields.json'])), [{ name: 'name', value: '' }, { name: 'city', max: '6', value: '' }]);
    });
    await test('a command as the instructions have it', async () => {
      const files = [{ path: 'input.form', uri: blank }, { path: 'values.json', text: '{"name": "Ada Lovelace", "city": "Zürich"}' }];
      const { links } = await bash('forms', 'python scripts/fill_fields.py input.form values.json output.form', files);
      filled = links['output.form'];
      assert.match(await text(filled), /<field name="name">Ada Lovelace<\/field>.*Zürich/);
    });
    await test('the file of one call in the next one', async () => {
      const { links } = await script('forms', 'scripts/extract_fields.py', ['again.form', 'out/fields.json'], [{ path: 'again.form', uri: filled }, { path: 'out/.keep', text: '' }]);
      assert.equal(JSON.parse(await text(links['out/fields.json']))[1].value, 'Zürich');
    });
    await test('values on standard input', async () => {
      const files = [{ path: 'input.form', uri: blank }];
      const { links } = await script('forms', 'scripts/fill_fields.py', ['input.form', '-', 'output.form'], files, { arguments: { city: 'Rome' } });
      assert.match(await text(links['output.form']), />Rome</);
    });
    await test('--help', async () => {
      const { out } = await script('forms', 'scripts/fill_fields.py', ['--help']);
      assert.match(out.stdout, /^usage: fill_fields\.py \[-h\] input values output\n/);
    });
    await test('an exit code and its reason', async () => {
      const given = { skill: 'forms', script_path: 'scripts/fill_fields.py', args: ['input.form', '-', 'x'], files: [{ path: 'input.form', uri: blank }], arguments: { town: 'Rome' } };
      const { failed, out, links } = await call('run_skill_script', given);
      assert.deepEqual([failed, out.exit_code, out.stderr], [true, 3, "ERROR: no field 'town'; the fields are name, city\n"]);
      assert.deepEqual(links, {});
    });
    await test('a ZIP file is made', async () => {
      const files = [{ path: 'in/doc/a.xml', text: '<a/>' }, { path: 'in/é.bin', base64: 'AP8=' }];
      const { out, links } = await bash('package', 'python scripts/pack.py in/ document.zip', files);
      assert.equal(out.stdout, 'Packed 2 files to document.zip\n');
      parts = { zip: links['document.zip'] };
    });
    await test('a ZIP file is read back', async () => {
      const { out, links } = await bash('package', 'python scripts/unpack.py document.zip unpacked/', [{ path: 'document.zip', uri: parts.zip }]);
      assert.equal(out.stdout, 'Unpacked document.zip to unpacked (1 XML files)\n');
      assert.deepEqual(await read(links['unpacked/é.bin']), Buffer.from([0, 255]));
      parts.files = Object.entries(links).map(([path, uri]) => ({ path, uri }));
    });
    await test('all files of a call in the next one', async () => {
      const files = [...parts.files, { path: 'document.zip', uri: parts.zip }];
      const { out } = await bash('package', 'python scripts/pack.py unpacked/ output.zip --original document.zip', files);
      assert.equal(out.stdout, 'Packed 2 files to output.zip\n');
    });
    await test('code of the agent reads a ZIP file', async () => {
      const code = 'import sys, zipfile\nprint(sorted(zipfile.ZipFile(sys.argv[1]).namelist()))';
      const result = await run('RunPython', { code, args: ['d.zip'], files: [{ path: 'd.zip', uri: parts.zip }] });
      assert.match(result.text, /\['doc\/a\.xml', 'é\.bin'\]/);
    });
  }

  async function reports() {
    const files = [{ path: 'results.json', text: results }];
    await test('an HTML report, then its check', async () => {
      const { out, links } = await bash('reports', 'python3 scripts/report.py results.json --output report.html && python3 scripts/check_html.py report.html', files);
      assert.equal(out.stdout, 'Report: /workspace/report.html\nreport.html: 2 rows\n');
      assert.match(await text(links['report.html']), /color: navy.*<h1>Größen &amp; more<\/h1>/s);
    });
    await test('an ECMAScript module', async () => {
      const { out, links } = await bash('reports', 'node scripts/chart.mjs results.json chart.svg', files);
      assert.equal(out.stdout, '2 bars\n');
      assert.match(await text(links['chart.svg']), /width="90" height="15"><title>large/);
    });
    await test('a script that is a pipeline', async () => {
      const { out } = await script('reports', 'scripts/count.sh', ['notes.txt'], [{ path: 'notes.txt', text: 'To be, or not to be\n' }]);
      assert.equal(out.stdout, '2 be\n2 to\n1 not\n1 or\n');
    });
    await test('a script that writes beside itself', async () => {
      const { links } = await script('reports', 'scripts/history.py', ['add', 'first run']);
      const next = await script('reports', 'scripts/history.py', ['add', 'second'], [{ path: 'scripts/history.json', uri: links['scripts/history.json'] }]);
      assert.deepEqual([next.out.stdout, JSON.parse(await text(next.links['scripts/history.json']))], ['2\n', ['first run', 'second']]);
    });
    await test('cd is refused with the way to do it, which works', async () => {
      const refused = await call('bash', { skill: 'reports', command: 'cd scripts && python3 history.py add x' });
      assert.equal(refused.out.instead, 'working_directory', refused.text);
      const { links } = await bash('reports', 'python3 history.py add x', [], { working_dir: 'scripts' });
      assert.equal(await text(links['scripts/history.json']), '["x"]');
    });
    await test('a script of the skill as a module', async () => {
      const { links } = await bash('reports', 'python3 -m scripts.history add x');
      assert.equal(await text(links['scripts/history.json']), '["x"]');
    });
    await test('a time-out', async () => {
      const { failed, out } = await call('run_skill_script', { skill: 'reports', script_path: 'scripts/serve.py', timeout: 1 });
      assert.deepEqual([failed, out.timeout, out.exit_code], [true, true, 124]);
    });
    await test('a command beyond the skill', async () => {
      const checked = await call('check_command', { skill: 'reports', command: 'curl https://example.com' });
      assert.equal(checked.out.allowed, false);
      const refused = await call('bash', { skill: 'reports', command: 'curl https://example.com' });
      assert.match(refused.text, /^.*Command not allowed by skill permissions/);
    });
  }

  async function others() {
    await test('uv run of a script with its own metadata', async () => {
      const { out } = await bash('inline', 'uv run scripts/score.py "first text" aa | sort -n');
      assert.equal(out.stdout, '1 aa\n8 first text\n');
    });
    await test('code of the agent with the library of a skill', async () => {
      const { text: instructions } = await find('drawing');
      const code = instructions.match(/```python\n(.*?)```/s)[1];
      const { links } = await run('run_python_script', { skill_name: 'drawing', script: code });
      assert.deepEqual(pngSize(await read(links['red.png'])), ['PNG', 4, 2]);
    });
    await test('a file of the instructions', async () => {
      const { text: instructions } = await find('reports');
      const path = instructions.match(/\]\((references\/.*?)\)/)[1];
      const { text: content } = await run('read_skill_file', { skill: 'reports', path });
      assert.match(content, /results/);
    });
    await test('a file that the agent sends as a script', async () => {
      const files = [{ path: 'job.py', base64: base64('import sys; print(open(sys.argv[1]).read().upper())') }, { path: 'ü.txt', text: 'grün' }];
      const result = await run('RunPython', { scriptPath: 'job.py', args: ['ü.txt'], files });
      assert.match(result.text, /GRÜN/);
    });
  }
}
