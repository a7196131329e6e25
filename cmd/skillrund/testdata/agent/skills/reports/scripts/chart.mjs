import { readFileSync, writeFileSync } from 'node:fs';

const [input, output] = process.argv.slice(2);
const { results } = JSON.parse(readFileSync(input, 'utf8'));
const bars = Object.entries(results).map(([name, value], i) => `<rect y="${i * 20}" width="${value}" height="15"><title>${name}</title></rect>`);
writeFileSync(output, `<svg xmlns="http://www.w3.org/2000/svg">${bars.join('')}</svg>\n`);
console.log(`${bars.length} bars`);
