"""What a program needs on a Cortex-M without an operating system to be run by an emulator: start-up code, a linker script, and as much
of C's standard streams as an example uses, through semihosting.

In: nothing. Out: files to be compiled and linked with a program of C and object files. Its standard input is the file `stdin.bin`, its
standard output `stdout.bin`, both in the folder that the emulator runs in. A product brings its own start-up code; this is the board of
`tengen verify`: Arm's MPS2 (images AN386 and AN500), 4 MB of code at 0, 4 MB of memory at 0x20000000, 16 MB of slower memory elsewhere.

Sources: Arm, Semihosting for AArch32 and AArch64; Armv7-M Architecture Reference Manual, B1.5 and B3.2.
"""

from __future__ import annotations

from pathlib import Path

INPUT, OUTPUT = "stdin.bin", "stdout.bin"

_SCRIPT = """\
ENTRY(Reset_Handler)
MEMORY { CODE (rx) : ORIGIN = 0, LENGTH = 4M   RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
  .vectors : { KEEP(*(.vectors)) } > CODE
  .text : { *(.text*) *(.rodata*) } > CODE
  .ARM.exidx : { *(.ARM.exidx*) } > CODE
  .data : { __data_start = .; *(.data*) . = ALIGN(4); __data_end = .; } > RAM AT > CODE
  __data_load = LOADADDR(.data);
  .bss (NOLOAD) : { __bss_start = .; *(.bss*) *(COMMON) . = ALIGN(64); __bss_end = .; } > RAM
  __stack_top = ORIGIN(RAM) + LENGTH(RAM);
}
"""

_STDIO = """\
#include <stddef.h>
#define NULL ((void *)0)
typedef struct { int handle, failed; } FILE;
extern FILE *const stdin, *const stdout, *const stderr;
FILE *fopen(const char *name, const char *mode);
int fclose(FILE *f);
size_t fread(void *to, size_t size, size_t count, FILE *f);
size_t fwrite(const void *from, size_t size, size_t count, FILE *f);
int fprintf(FILE *f, const char *format, ...);
int fflush(FILE *f);
int ferror(FILE *f);
"""

_STDLIB = """\
#include <stddef.h>
void *aligned_alloc(size_t align, size_t size);
void *malloc(size_t size);
long long atoll(const char *text);
"""

_BOARD = r"""
#include <stdint.h>
#include "stdio.h"
#include "stdlib.h"

extern uint32_t __data_start, __data_end, __data_load, __bss_start, __bss_end, __stack_top;
int main(int argc, char **argv);

static int semihosting(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void quit(int code) {
    uint32_t words[2] = {0x20026u, (uint32_t)code};
    semihosting(0x20, words);
    for (;;) ;
}

static FILE files[4] = {{0, 0}, {0, 0}, {-1, 0}, {0, 0}};
FILE *const stdin = &files[0], *const stdout = &files[1], *const stderr = &files[2];

static int length(const char *text) { int n = 0; while (text[n]) n++; return n; }

static int open_file(const char *name, int mode) {
    uint32_t words[3] = {(uint32_t)name, (uint32_t)mode, (uint32_t)length(name)};
    return semihosting(0x01, words);
}

FILE *fopen(const char *name, const char *mode) {
    files[3].handle = open_file(name, mode[0] == 'r' ? 1 : 5);
    return files[3].handle < 0 ? NULL : &files[3];
}

int fclose(FILE *f) {
    uint32_t words[1] = {(uint32_t)f->handle};
    return semihosting(0x02, words);
}

size_t fread(void *to, size_t size, size_t count, FILE *f) {
    uint32_t words[3] = {(uint32_t)f->handle, (uint32_t)to, size * count};
    uint32_t left = size * count ? (uint32_t)semihosting(0x06, words) : 0;
    return (size * count - left) / size;
}

size_t fwrite(const void *from, size_t size, size_t count, FILE *f) {
    uint32_t words[3] = {(uint32_t)f->handle, (uint32_t)from, size * count};
    uint32_t left = size * count ? (uint32_t)semihosting(0x05, words) : 0;
    f->failed |= left != 0;
    return (size * count - left) / size;
}

int fprintf(FILE *f, const char *format, ...) { (void)f; return semihosting(0x04, format); }
int fflush(FILE *f) { (void)f; return 0; }
int ferror(FILE *f) { return f->failed; }

long long atoll(const char *text) {
    long long n = 0;
    while (*text >= '0' && *text <= '9') n = n * 10 + (*text++ - '0');
    return n;
}

static void *take(uintptr_t *next, uintptr_t end, size_t align, size_t size) {
    uintptr_t at = (*next + align - 1) & ~(uintptr_t)(align - 1);
    if (at > end || size > end - at) return NULL;
    *next = at + size;
    return (void *)at;
}

/* From the memory that is left below 64 KiB of stack, else from the PSRAM, which AN500, the larger of the two, has elsewhere. */
void *aligned_alloc(size_t align, size_t size) {
    static uintptr_t near, far, end;
    if (!near) {
        near = (uintptr_t)&__bss_end;
        far = (*(volatile uint32_t *)0xE000ED00 >> 4 & 0xFFF) == 0xC27 ? 0x60000000u : 0x21000000u;
        end = far + (16u << 20);
    }
    void *found = take(&near, (uintptr_t)&found - 65536, align, size);
    return found ? found : take(&far, end, align, size);
}

void *malloc(size_t size) { return aligned_alloc(64, size); }

void Fault(void) { semihosting(0x04, "a fault of the processor\n"); quit(99); }

void Reset_Handler(void) {
    static char line[256];
    static char *argv[16];
    int argc = 0;
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n isb");
    uint32_t *from = &__data_load;
    for (uint32_t *to = &__data_start; to < &__data_end;) *to++ = *from++;
    for (uint32_t *to = &__bss_start; to < &__bss_end;) *to++ = 0;
    uint32_t words[2] = {(uint32_t)line, sizeof line};
    if (semihosting(0x15, words) == 0)
        for (char *c = line; *c && argc < 16;) {
            argv[argc++] = c;
            while (*c && *c != ' ') c++;
            if (*c) *c++ = 0;
        }
    files[0].handle = open_file("stdin.bin", 1);
    files[1].handle = open_file("stdout.bin", 5);
    int code = main(argc, argv);
    fclose(stdout);
    quit(code);
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    &__stack_top, Reset_Handler, Fault, Fault, Fault, Fault, Fault
};
"""


def linking(folder: Path) -> list[str]:
    """Writes the board's files into a folder. The arguments with which a compiler links a program for it."""
    for name, text in (("link.ld", _SCRIPT), ("stdio.h", _STDIO), ("stdlib.h", _STDLIB), ("board.c", _BOARD)):
        (folder / name).write_text(text)
    options = ["-ffreestanding", "-fno-sanitize=undefined", "-Wl,-e,Reset_Handler", f"-Wl,-T,{folder / 'link.ld'}"]
    return [*options, f"-I{folder}", str(folder / "board.c")]


def running(program: Path, arguments: list[str]) -> list[str]:
    """The emulator's arguments for a program; its own have no spaces or commas in them."""
    config = ",".join(["enable=on,target=native", *(f"arg={a}" for a in ["program", *arguments])])
    return ["-nographic", "-monitor", "none", "-serial", "null", "-semihosting-config", config, "-kernel", str(program)]
