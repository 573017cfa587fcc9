"""`python -m unbroken`: the command line."""

from unbroken.cli.begin import main

if __name__ == "__main__":
    main()
