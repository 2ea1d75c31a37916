"""``python -m tengen``."""

from tengen.cli.main import main

if __name__ == "__main__":
    main()
