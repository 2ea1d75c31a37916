"""What a program for Linux on another processor, or for WASI, needs to run without a C library: zig has none ready, and takes half a minute
of processor time to build one for a target when it is first asked. Standard streams, reading of files and memory are here, over system calls.

In: a target, C and object files that make one program. Out: the arguments with which zig links it. Programs with threads, and C that
calls more than this, are linked with a C library (`run.py`); those for a processor without an operating system by `bare.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tengen.codegen.targets import Target
from tengen.codegen.targets.system import LINUX, WASM
from tengen.deploy.objects import read_object

MEMORY = {"memcpy", "memmove", "memset"}  # what an artifact of one thread calls of C's library
COMPILERS = {"fma"}  # the same, which zig's own run-time library has too; options with -nostdlib leave that out

_STDIO = """\
#include <stddef.h>
typedef struct { int file, failed; } FILE;
extern FILE *const stdin, *const stdout, *const stderr;
FILE *fopen(const char *name, const char *mode); /* to read; one at a time */
int fclose(FILE *f);
size_t fread(void *to, size_t size, size_t count, FILE *f);
size_t fwrite(const void *from, size_t size, size_t count, FILE *f);
int fprintf(FILE *f, const char *format, ...); /* with %d and %s alone */
int fflush(FILE *f);
int ferror(FILE *f);
"""

_STDLIB = """\
#include <stddef.h>
void *malloc(size_t size);
void *aligned_alloc(size_t align, size_t size); /* on 4096 bytes at most */
long long atoll(const char *text);
"""

_START = r"""
#include <stdarg.h>
#include "stdio.h"
#include "stdlib.h"

typedef long word;
int main(int argc, char **argv);
CALLS
static FILE files[4] = {{0, 0}, {1, 0}, {2, 0}, {0, 0}};
FILE *const stdin = &files[0], *const stdout = &files[1], *const stderr = &files[2];

FILE *fopen(const char *name, const char *mode) {
    files[3].file = mode[0] == 'r' ? open_file(name) : -1;
    return files[3].file < 0 ? NULL : &files[3];
}

int fclose(FILE *f) { close_file(f->file); return 0; }

size_t fread(void *to, size_t size, size_t count, FILE *f) {
    size_t done = 0;
    word n = 0;
    while (done < size * count && (n = get(f->file, (char *)to + done, size * count - done)) > 0) done += (size_t)n;
    f->failed |= n < 0;
    return done / size;
}

size_t fwrite(const void *from, size_t size, size_t count, FILE *f) {
    size_t done = 0;
    for (word n; done < size * count && (n = put(f->file, (const char *)from + done, size * count - done)) > 0;) done += (size_t)n;
    f->failed |= done < size * count;
    return done / size;
}

static void put_text(FILE *f, const char *text) {
    size_t n = 0;
    while (text[n]) n++;
    fwrite(text, 1, n, f);
}

static void put_number(FILE *f, int number) {
    char digits[12], *at = digits + sizeof digits - 1;
    unsigned left = number < 0 ? -(unsigned)number : (unsigned)number;
    *at = 0;
    do *--at = (char)('0' + left % 10); while (left /= 10);
    if (number < 0) *--at = '-';
    put_text(f, at);
}

int fprintf(FILE *f, const char *format, ...) {
    va_list given;
    va_start(given, format);
    for (; *format; format++) {
        if (format[0] == '%' && format[1] == 'd') put_number(f, va_arg(given, int)), format++;
        else if (format[0] == '%' && format[1] == 's') put_text(f, va_arg(given, const char *)), format++;
        else fwrite(format, 1, 1, f);
    }
    va_end(given);
    return f->failed ? -1 : 0;
}

int fflush(FILE *f) { return f->failed ? -1 : 0; }
int ferror(FILE *f) { return f->failed; }

long long atoll(const char *text) {
    long long n = 0;
    while (*text >= '0' && *text <= '9') n = n * 10 + (*text++ - '0');
    return n;
}

void *aligned_alloc(size_t align, size_t size) { return align > 4096 ? NULL : malloc(size); }

/* What compilers call by themselves. */
void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    const char *f = from;
    for (volatile char *t = to; n--;) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t n) {
    const char *f = from;
    volatile char *t = to;
    if ((char *)to <= f) return memcpy(to, from, n);
    while (n--) t[n] = f[n];
    return to;
}

void *memset(void *to, int byte, size_t n) {
    for (volatile char *t = to; n--;) *t++ = (char)byte;
    return to;
}
"""


def enough(target: Target, files: Iterable[str | Path]) -> bool:
    """Whether this is enough for a program of these files: its object files call nothing of C's library but `MEMORY` and `COMPILERS`. Its
    C calls no function that the headers here do not declare, which the compiler says otherwise."""
    if target.architecture.alone is None or target.system not in (LINUX, WASM):
        return False
    objects = [read_object(Path(f).read_bytes()) for f in files if str(f).endswith(".o")]
    own = set() if "-nostdlib" in target.architecture.alone.options else COMPILERS
    there = MEMORY.union(own, *(o.defined for o in objects))
    return all(name in there or name.startswith(target.system.library) for o in objects for name in o.needed)


def linking(target: Target, folder: Path) -> list[str]:
    """Writes the files of this module into a folder. The arguments with which `zig cc` links a program with them."""
    options, calls = target.architecture.alone
    for name, text in (("stdio.h", _STDIO), ("stdlib.h", _STDLIB), ("start.c", _START.replace("CALLS", calls))):
        (folder / name).write_text(text)
    return ["-target", *options, "-O1", "-ffreestanding", "-static", f"-I{folder}", str(folder / "start.c")]
