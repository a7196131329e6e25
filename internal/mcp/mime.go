package mcp

import (
	"path"
	"strings"
)

// mimeTypes maps the extensions of typical files to types. It replaces the table of package
// mime, which depends on the machine.
var mimeTypes = map[string]string{
	".md": "text/markdown", ".txt": "text/plain", ".log": "text/plain", ".csv": "text/csv", ".tsv": "text/tab-separated-values",
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".xml": "application/xml", ".svg": "image/svg+xml",
	".json": "application/json", ".jsonl": "application/jsonl", ".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml",
	".py": "text/x-python", ".sh": "text/x-shellscript", ".js": "text/javascript", ".rb": "text/x-ruby", ".pl": "text/x-perl",
	".mjs": "text/javascript", ".cjs": "text/javascript", ".ts": "text/x-typescript", ".mts": "text/x-typescript", ".cts": "text/x-typescript",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
	".docx":    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx":    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx":    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".parquet": "application/vnd.apache.parquet", ".sqlite": "application/vnd.sqlite3",
	".wav": "audio/wav", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
}

// mimeType returns the type of a file by its extension, or "".
func mimeType(name string) string { return mimeTypes[strings.ToLower(path.Ext(name))] }
