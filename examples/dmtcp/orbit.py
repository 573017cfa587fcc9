"""A planet around its star, step by step: a program that cannot save its state and knows nothing of checkpoints."""

import sys
import time

STEPS, REST_SECONDS = int(sys.argv[1]), float(sys.argv[2])
DT = 0.001


def acceleration(x: float, y: float) -> tuple[float, float]:
    cube = (x * x + y * y) ** 1.5
    return -x / cube, -y / cube


x, y, vx, vy = 1.0, 0.0, 0.0, 1.1
with open("orbit.csv", "w") as table:
    table.write("step,x,y\n")
    for step in range(1, STEPS + 1):
        for _ in range(20):
            ax, ay = acceleration(x, y)
            vx, vy = vx + DT * ax, vy + DT * ay
            x, y = x + DT * vx, y + DT * vy
        table.write(f"{step},{x!r},{y!r}\n")
        time.sleep(REST_SECONDS)
print(f"{STEPS} steps, energy {0.5 * (vx * vx + vy * vy) - (x * x + y * y) ** -0.5!r}")
