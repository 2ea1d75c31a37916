"""What programs have in the place of a C library, where zig links them for another processor."""

import subprocess

import pytest
from exhaustive import but
from needs import needs

from tengen.codegen.targets import Target
from tengen.deploy import freestanding
from tengen.deploy.emulators import runners
from tengen.deploy.run import link_program, linker

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  char text[8] = "none", more[8];
  FILE *file = fopen(argv[1], "rb");
  if (argc != 3 || !file || fread(text, 1, 8, file) != 5 || fread(more, 1, 8, stdin) != 3) return 2;
  fclose(file);
  char *own = malloc(100000), *other = aligned_alloc(64, 10);
  if (!own || !other || ((size_t)other & 63) || fopen("/no/such/file", "rb")) return 3;
  for (int i = 0; i < 100000; i++) own[i] = 7;
  fprintf(stderr, "%s: %d, %d%%\n", "numbers", -2147483647 - 1, (int)atoll(argv[2]));
  fwrite(text, 1, 5, stdout), fwrite(more, 1, 3, stdout);
  return fflush(stdout) || ferror(stdin) ? 4 : 77;
}
"""


@but(these=["aarch64"])
@needs("ziglang")
@pytest.mark.parametrize("target", ["aarch64", "riscv64", "armv7", "wasm32"])
def test_files_streams_memory_and_arguments(target, tmp_path):
    t = Target.named(target)
    if not (ways := runners(t)):
        pytest.skip("no emulator is installed")
    if "ziglang" not in linker(t):
        pytest.skip("another compiler is here, with a C library")
    (tmp_path / "main.c").write_text(PROGRAM)
    (tmp_path / "data").write_bytes(b"bytes")
    assert freestanding.enough(t, [tmp_path / "main.c"])
    built = link_program(t, [str(tmp_path / "main.c")], tmp_path / "program")
    for start, how in ways:
        done = subprocess.run([*start, str(built), str(tmp_path / "data"), "1234"], input=b"abc", capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (77, b"bytesabc", b"numbers: -2147483648, 1234%%\n"), how
