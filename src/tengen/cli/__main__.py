"""``python -m tengen.cli``."""

from tengen.cli.main import main

if __name__ == "__main__":
    main()
