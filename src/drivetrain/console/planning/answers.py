"""Makes the console's answers from a plan.

Called by `console.planning.program`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drivetrain.api.settings import Setting
from drivetrain.config.references import shown
from drivetrain.console.answers.graph import (
    ApplicationSetting,
    Box,
    Graph,
    GraphChannel,
    GraphFragment,
    GraphLine,
    GraphProcessor,
    GraphSink,
)
from drivetrain.core.picture.fragment_layout import PlacedFragment
from drivetrain.core.picture.labels import Picture, channel_name, heading, picture_of
from drivetrain.core.picture.shapes import Rectangle, svg_path
from drivetrain.core.plan.plan import Plan


def graph_of(plan: Plan) -> Graph:
    """The graph of a plan, with the coordinates that its picture has."""
    picture = picture_of(plan)
    scene = picture.scene
    return Graph(
        application=plan.application,
        guarantee=plan.guarantee,
        delivery=plan.delivery,
        latency=plan.latency,
        is_bounded=plan.bounded,
        width=scene.width,
        height=scene.height,
        fragments=tuple(_fragment(plan, placed) for placed in scene.fragments),
        processors=tuple(each for placed in scene.fragments for each in _processors(plan, picture, placed)),
        channels=tuple(
            GraphChannel(
                channel=channel.id,
                producer=channel.producer,
                producer_fragment=channel.producer_fragment,
                subscriber_fragment=channel.consumer_fragment,
                why=channel.why,
                label=channel_name(channel),
                box=_box(scene.channels[channel.id]),
            )
            for channel in plan.channels
        ),
        lines=tuple(
            GraphLine(source=edge.source, target=edge.target, channel=edge.channel, path=svg_path(edge.line))
            for edge in (*scene.lines, *scene.channel_lines)
        ),
        sinks=tuple(
            GraphSink(processor=sink.id, target=sink.target, guarantee=sink.guarantee, why=sink.why)
            for sink in plan.sinks
        ),
    )


def settings_of(declared: Mapping[str, Setting]) -> tuple[ApplicationSetting, ...]:
    """The settings that an application declares, with secrets blotted out."""
    return tuple(
        ApplicationSetting(
            name=setting.name,
            kind=setting.type.__name__,
            value=None if setting.value is None else _value(setting),
            is_required=setting.required,
            description=setting.doc,
        )
        for setting in declared.values()
    )


def _value(setting: Setting) -> str:
    return "***" if setting.secret else shown(setting.name, str(setting.value))


def _fragment(plan: Plan, placed: PlacedFragment) -> GraphFragment:
    id = placed.fragment.id
    return GraphFragment(
        fragment=id,
        heading=heading(id),
        box=_box(placed.frame),
        panels={name: _box(panel) for name, panel in placed.panels.items()},
        stateful=placed.fragment.stateful,
        is_realtime=plan.is_realtime(id),
        obstacles=tuple(map(str, plan.obstacles.get(id, ()))),
    )


def _processors(plan: Plan, picture: Picture, placed: PlacedFragment) -> Iterator[GraphProcessor]:
    fragment = placed.fragment
    for id, box in placed.processors.items():
        operator, label = plan.operators[id], picture.labels[id]
        yield GraphProcessor(
            processor=id,
            fragment=fragment.id,
            kind=operator.kind,
            how=operator.how,
            why=operator.why,
            text=operator.text,
            line=operator.where,
            place="state" if id == fragment.stateful else "trunk" if id in fragment.trunk else "branch",
            columns=operator.columns,
            label=label.name,
            details=tuple(label.details),
            box=_box(box),
        )


def _box(box: Rectangle) -> Box:
    return Box(x=box.x, y=box.y, width=box.width, height=box.height)
