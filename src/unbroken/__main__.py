"""`python -m unbroken`: the command line."""

from unbroken.cli.main import main

if __name__ == "__main__":
    main()
