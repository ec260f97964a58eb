"""`python -m wasmrun`: what of the command line is written in Python."""

import sys

from . import _stubs

if sys.argv[1:2] != ["stubs"]:
    raise SystemExit("usage: python -m wasmrun stubs MODULE.wasm [--out FILE]; everything else is the program `wasmrun`")
_stubs.main(sys.argv[2:])
