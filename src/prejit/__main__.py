"""Run the command line: `python -m prejit` is `prejit`."""

from prejit.cli.app import main

if __name__ == "__main__":
    main()
