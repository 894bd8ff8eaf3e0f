"""Points in the plane or in space."""

from collections.abc import Mapping, Sequence
from typing import Any

from colligate.report.figures.marks import Figure, plain


def points_map(
    key: str, title: str, points: Sequence[Mapping[str, Any]], note: str, pictures: Mapping[str, str]
) -> Figure | None:
    """Points in the plane or in space, coloured by a concept of the reader's choice; drawn by the page itself.

    A point has `label`, `x`, `y`, `z`, `hover`, and either `kind` (concept, object, scene, sum) or `values`.
    """
    if not points:
        return None
    kept = []
    for point in points:
        hover = str(point.get("hover", point.get("label", "")))
        picture = str(pictures.get(hover, ""))
        kept.append(
            {
                "x": float(point["x"]),
                "y": float(point["y"]),
                "z": float(point.get("z") or 0.0),
                "label": plain(point.get("label", "")),
                "hover": plain(hover),
                "raw": hover,
                "kind": point.get("kind"),
                "group": point.get("group"),
                "values": {str(k): str(v) for k, v in (point.get("values") or {}).items()},
                **({"picture": picture} if picture.startswith(("data:image/png;", "data:image/jpeg;")) else {}),
            }
        )
    concepts = list(dict.fromkeys(name for point in kept for name in point["values"]))
    kinds = [k for k in ("concept", "object", "scene", "sum") if any(p["kind"] == k for p in kept)]
    named = "; ".join(str(p.get("label", "")) for p in points[:12])
    alt = f"{title}. A map of {len(kept)} points: {named}{' and more' if len(kept) > 12 else ''}."
    spec = {"map": {"points": kept, "concepts": concepts, "kinds": kinds}}
    return Figure(key, title, alt, note, spec, half=bool(concepts))
