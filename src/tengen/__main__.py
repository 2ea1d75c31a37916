"""``python -m tengen``."""

from tengen.cli.entry import main

if __name__ == "__main__":
    main()
