"""Ray-trace a street with Sionna RT, and write the gains for `channel.path_loss: {kind: table, path: canyon.npz}`.

pip install sionna-rt; python examples/trace_a_street.py canyon.npz

The script requires Sionna RT 1.0 or later (https://nvlabs.github.io/sionna/rt), on a CPU with LLVM. In a scenario:

    devices: {mobility: {kind: sumo, ...}}          # or another mobility in the street
    channel:
      carrier_hz: 3.5e+9
      path_loss: {kind: table, path: canyon.npz}
      base_station: {height_m: 10}
    network: {cells: {kind: list, xy_m: [[-32.5, 9.0], [32.5, 9.0]]}}
"""

import sys

import numpy as np
import sionna.rt
from sionna.rt import PathSolver, PlanarArray, Receiver, Transmitter, load_scene

CARRIER_HZ = 3.5e9
STATIONS_M = np.array([[-32.5, 9.0, 10.0], [32.5, 9.0, 10.0]])
X_M, Y_M, HEIGHT_M = np.arange(-60.0, 61.0, 2.0), np.arange(-8.0, 9.0, 2.0), 1.5
AT_ONCE = 200
"""Number of places per call of the solver, which keeps all their paths in memory."""

scene = load_scene(sionna.rt.scene.simple_street_canyon)
scene.frequency = CARRIER_HZ
scene.tx_array = scene.rx_array = PlanarArray(num_rows=1, num_cols=1, pattern="iso", polarization="V")
for number, station_m in enumerate(STATIONS_M):
    scene.add(Transmitter(name=f"station{number}", position=station_m.tolist()))
xyz_m = np.array([[x, y, HEIGHT_M] for x in X_M for y in Y_M])
solver = PathSolver()


def gains(**options: object) -> np.ndarray:
    """Return the power sum over the paths from each station to the receivers of the scene, [receivers, stations]."""
    real, imaginary = solver(scene=scene, synthetic_array=True, **options).a  # [rx, antennas, tx, antennas, paths]
    return (np.asarray(real) ** 2 + np.asarray(imaginary) ** 2).sum(axis=(1, 3, 4))


gain, direct = [], []
for start in range(0, len(xyz_m), AT_ONCE):
    names = [f"place{place}" for place in range(start, min(start + AT_ONCE, len(xyz_m)))]
    for name, place_m in zip(names, xyz_m[start:], strict=False):
        scene.add(Receiver(name=name, position=place_m.tolist()))
    gain.append(gains(max_depth=4, los=True, specular_reflection=True, diffuse_reflection=False, refraction=False))
    direct.append(gains(max_depth=0, los=True, specular_reflection=False, diffuse_reflection=False, refraction=False))
    for name in names:
        scene.remove(name)

with np.errstate(divide="ignore"):  # minus infinity without a path
    gain_db = 10 * np.log10(np.concatenate(gain))
np.savez(
    sys.argv[1],
    gain_db=gain_db,
    los=np.concatenate(direct) > 0,
    xyz_m=xyz_m,
    stations_m=STATIONS_M,
    carrier_hz=CARRIER_HZ,
)
print(f"{len(xyz_m)} places, {np.isfinite(gain_db).mean():.0%} of the links with a path")
