"""Programs for Linux on other processors and for WASI, linked without a C library: zig builds a library for a target when it is first
asked, which takes half a minute of processor time. What such a program has of C's standard streams and memory is below, over system calls.

In: a target, C and object files that make one program. Out: the program, as `deploy.run.link_program` gives it with a C library.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from tengen.codegen.targets import Target
from tengen.deploy.run import link_program

TRIPLES = {  # -nostdlib where the code calls nothing of the compiler's own library, which zig builds for the others
    "aarch64": ["aarch64-freestanding-none", "-nostdlib"],
    "riscv64": ["riscv64-freestanding-none", "-nostdlib"],
    "armv7": ["arm-freestanding-eabihf", "-mcpu=cortex_a7"],
    "wasm32": ["wasm32-freestanding", "-Wl,--export=_start"],
}

_STDIO = """\
#include <stddef.h>
typedef struct { int file; } FILE;
extern FILE *const stdin, *const stdout, *const stderr;
size_t fread(void *to, size_t size, size_t count, FILE *f);
size_t fwrite(const void *from, size_t size, size_t count, FILE *f);
int fprintf(FILE *f, const char *format, ...); /* writes the format as it is */
int fflush(FILE *f);
"""

_STDLIB = """\
#include <stddef.h>
void *aligned_alloc(size_t align, size_t size);
"""

_START = r"""
#include "stdio.h"
#include "stdlib.h"

typedef long word;
#if defined(__aarch64__)
enum { READ = 63, WRITE = 64, EXIT = 93 };
static word call(word number, word a, word b, word c) {
    register word n __asm__("x8") = number, x __asm__("x0") = a, y __asm__("x1") = b, z __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
    return x;
}
#elif defined(__riscv)
enum { READ = 63, WRITE = 64, EXIT = 93 };
static word call(word number, word a, word b, word c) {
    register word n __asm__("a7") = number, x __asm__("a0") = a, y __asm__("a1") = b, z __asm__("a2") = c;
    __asm__ volatile("ecall" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
    return x;
}
#elif defined(__arm__)
enum { READ = 3, WRITE = 4, EXIT = 1 };
static word call(word number, word a, word b, word c) {
    register word n __asm__("r7") = number, x __asm__("r0") = a, y __asm__("r1") = b, z __asm__("r2") = c;
    __asm__ volatile("svc 0" : "+r"(x) : "r"(n), "r"(y), "r"(z) : "memory");
    return x;
}
#elif defined(__wasm__)
enum { READ, WRITE, EXIT };
#define IMPORTED(name) __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name))) extern
struct piece { word at; size_t bytes; };
IMPORTED(fd_read) int fd_read(int file, const struct piece *pieces, size_t count, size_t *done);
IMPORTED(fd_write) int fd_write(int file, const struct piece *pieces, size_t count, size_t *done);
IMPORTED(proc_exit) void proc_exit(int code);
static word call(word number, word a, word b, word c) {
    struct piece p = {b, (size_t)c};
    size_t done = 0;
    if (number == EXIT) proc_exit((int)a);
    return (number == READ ? fd_read : fd_write)((int)a, &p, 1, &done) ? -1 : (word)done;
}
#endif

static FILE files[3] = {{0}, {1}, {2}};
FILE *const stdin = &files[0], *const stdout = &files[1], *const stderr = &files[2];

size_t fread(void *to, size_t size, size_t count, FILE *f) {
    size_t done = 0;
    for (word n; done < size * count && (n = call(READ, f->file, (word)to + done, size * count - done)) > 0;) done += n;
    return done / size;
}

size_t fwrite(const void *from, size_t size, size_t count, FILE *f) {
    size_t done = 0;
    for (word n; done < size * count && (n = call(WRITE, f->file, (word)from + done, size * count - done)) > 0;) done += n;
    return done / size;
}

int fprintf(FILE *f, const char *format, ...) {
    size_t n = 0;
    while (format[n]) n++;
    return (int)fwrite(format, 1, n, f);
}

int fflush(FILE *f) { (void)f; return 0; }

void *aligned_alloc(size_t align, size_t size) { /* align: a power of two, as C asks */
    static char memory[64 << 20] __attribute__((aligned(4096)));
    static size_t next;
    size_t at = (next + align - 1) & ~(align - 1);
    if (align > 4096 || size > sizeof memory - at) return NULL;
    next = at + size;
    return memory + at;
}

/* What compilers call by themselves. */
void *memcpy(void *restrict to, const void *restrict from, size_t n) {
    const char *f = from;
    for (volatile char *t = to; n--;) *t++ = *f++;
    return to;
}

void *memset(void *to, int byte, size_t n) {
    for (volatile char *t = to; n--;) *t++ = (char)byte;
    return to;
}

int main(void);
void _start(void) {
    for (word code = main();;) call(EXIT, code, 0, 0);
}
"""


def link(target: Target, files: Sequence[str], program: Path) -> Path:
    """Links C and object files to a program that is run by `emulators.runner`'s command. Errors: TengenError where that fails."""
    for name, text in (("stdio.h", _STDIO), ("stdlib.h", _STDLIB), ("start.c", _START)):
        (program.parent / name).write_text(text)
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", *TRIPLES[target.architecture.name], "-O1", "-ffreestanding", "-static"]
    return link_program(target, [str(program.parent / "start.c"), *files], program, [*zig, f"-I{program.parent}"])
