"""Write reads of three genomes that share a repeat, the same in each run."""

import random

RANDOM = random.Random(7)
GENOMES = ((60_000, 30), (40_000, 20), (30_000, 40))  # bases, coverage
COMPLEMENT = str.maketrans("ACGT", "TGCA")


def genome(bases: int) -> str:
    return "".join(RANDOM.choice("ACGT") for _ in range(bases))


def read(text: str) -> str:
    return "".join(RANDOM.choice("ACGT") if RANDOM.random() < 0.003 else base for base in text)


def main() -> None:
    repeat, count = genome(1200), 0
    genomes = [(genome(bases // 2) + repeat + genome(bases // 2), coverage) for bases, coverage in GENOMES]
    with open("reads_1.fq", "w") as one, open("reads_2.fq", "w") as two:
        for text, coverage in genomes:
            for _ in range(len(text) * coverage // 200):
                at = RANDOM.randrange(len(text) - 320)
                piece = text[at : at + 320]
                if RANDOM.random() < 0.5:
                    piece = piece.translate(COMPLEMENT)[::-1]
                count += 1
                one.write(f"@r{count}/1\n{read(piece[:100])}\n+\n{'I' * 100}\n")
                two.write(f"@r{count}/2\n{read(piece[-100:].translate(COMPLEMENT)[::-1])}\n+\n{'I' * 100}\n")


if __name__ == "__main__":
    main()
