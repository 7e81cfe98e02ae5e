"""Real text in many languages: what programs say of themselves in Debian's package lists (AppStream
summaries of bookworm, a few lines of them), with hits that were chosen by hand."""

# ruff: noqa: RUF001

from __future__ import annotations

import pytest

from omnigraph import Graph
from omnigraph.model.ports import World

SCHEMA = """
node App {
  name: String @key
  de: String? @index(language="german")
  fr: String? @index(language="french")
  es: String? @index(language="spanish")
  ru: String? @index(language="russian")
  ja: String? @index(tokenizer="cjk")
  zh: String? @index(tokenizer="cjk")
  th: String? @index(tokenizer="ngram")
}
"""
SUMMARIES = {
    "de": {
        "music": "Geben Sie Ihre Musik wieder und verwalten Sie Ihre Sammlung",
        "gcompris": "Lernspiel mit vielen Aktivitäten für Kinder von 2 bis 10 Jahren",
        "weather": "Wetterberichte und -vorhersagen anzeigen",
        "chess": "Das klassische 2-Spieler-Brettspiel Schach spielen",
        "maps": "Orte in der ganzen Welt finden",
        "gimp": "Bilder erstellen und Fotografien bearbeiten",
        "photos": "In GNOME auf Ihre Fotos zugreifen, diese verwalten und freigeben",
    },
    "fr": {
        "roller": "Ouvrir, modifier et créer des fichiers archives",
        "gcompris": "Jeu éducatif multi-activités pour les enfants de 2 à 10 ans",
        "digikam": "Application de gestion de photos",
        "weather": "Affiche le temps qu’il fait et les prévisions",
        "chess": "Jouer au jeu d’échecs classique à deux joueurs",
        "inkscape": "Éditeur d'images vectorielles SVG Inkscape",
        "gimp": "Créer des images et modifier des photographies",
    },
    "es": {
        "music": "Reproducir y organizar su colección de música",
        "gcompris": "Juego educativo multiactividad para niños de 2 a 10 años",
        "okular": "Visor de documentos",
        "evince": "Visor de documentos para formatos de documentos populares",
        "digikam": "Programa de gestión de fotos",
        "kate": "Editor de texto avanzado",
        "gimp": "Cree imágenes y edite fotografías",
        "photos": "Acceda, organice y comparta sus fotos en GNOME",
    },
    "ru": {
        "gcompris": "Интерактивные обучающие игры для детей от 2 до 10 лет",
        "okular": "Просмотр документов",
        "evince": "Приложение для просмотра документов в распространённых форматах",
        "digikam": "Программа для управления фотографиями",
        "kate": "Улучшенный текстовый редактор",
        "inkscape": "Редактор векторной графики",
        "gimp": "Создание изображений и редактирование фотографий",
        "photos": "Доступ, управление и обмен фотографиями в GNOME",
    },
    "ja": {
        "music": "音楽コレクションの再生と整理",
        "weather": "天気の概況と予報を表示します",
        "elisa": "オンラインラジオをサポートした、無駄のない美しい音楽プレーヤー",
        "evince": "人気の高い文書フォーマット用のドキュメントビューアー",
        "gimp": "画像の作成と写真の編集を行います",
        "photos": "GNOME で写真を表示、整理、共有します",
    },
    "zh": {
        "music": "播放与管理您的音乐集",
        "weather": "显示天气状况和天气预报",
        "inkscape": "矢量图形编辑器",
        "gimp": "创建图像或编辑照片",
        "photos": "在 GNOME 下访问、管理和分享您的照片",
        "maps": "寻找世界各地的地点",
    },
    "th": {
        "weather": "แสดงสภาพอากาศและการพยากรณ์",
        "calendar": "ปฏิทินสำหรับ GNOME",
        "evince": "โปรแกรมดูเอกสารสำหรับฟอร์แมตยอดนิยมต่างๆ",
    },
}
HITS = [
    ("de", "FOTOS", "photos"),
    ("de", "BILD", "gimp"),
    ("de", "das Kind", "gcompris"),
    ("de", "verwaltet", "music photos"),
    ("de", "Spiel", "chess"),
    ("fr", "enfant", "gcompris"),
    ("fr", "image", "gimp inkscape"),
    ("fr", "modifié", "gimp roller"),
    ("fr", "ÉCHEC", "chess"),
    ("fr", "prévision", "weather"),
    ("es", "foto", "digikam photos"),
    ("es", "niño", "gcompris"),
    ("es", "el documento", "evince okular"),
    ("es", "fotografía", "gimp"),
    ("ru", "фотография", "digikam gimp photos"),
    ("ru", "документ", "evince okular"),
    ("ru", "редакторы", "inkscape kate"),
    ("ru", "дети", "gcompris"),
    ("ja", "写真", "gimp photos"),
    ("ja", "音楽", "elisa music"),
    ("ja", "整理", "music photos"),
    ("ja", "ラジオ", "elisa"),
    ("zh", "照片", "gimp photos"),
    ("zh", "天气", "weather"),
    ("zh", "管理", "music photos"),
    ("zh", "图", "gimp inkscape"),
    ("zh", "gnome", "photos"),
    ("th", "อากาศ", "weather"),
    ("th", "เอกสาร", "evince"),
    ("th", "ปฏิทิน", "calendar"),
]


@pytest.fixture(scope="module", params=[1, 1 << 40], ids=["stored", "made"])
def graph(request, tmp_path_factory):
    apps = {}
    for language, some in SUMMARIES.items():
        for name, text in some.items():
            apps.setdefault(name, {"name": name})[language] = text
    uri = str(tmp_path_factory.mktemp("apps") / "g.omni")
    world = World(durability="process", derived_rows_min=request.param)
    with Graph.init(uri, SCHEMA, world=world) as made:
        made.load({"App": list(apps.values())}, mode="append")
    with Graph.open(uri) as opened:
        yield opened


@pytest.mark.parametrize(("language", "query", "expected"), HITS)
def test_a_search_finds_what_a_reader_would(graph, language, query, expected):
    asked = f"""query q($q: String) {{
      match {{ $a: App  search($a.{language}, $q) }}
      return {{ $a.name, bm25($a.{language}, $q) as score }}
    }}"""
    rows = graph.query(asked, params={"q": query}).to_pylist()
    assert sorted(row["a.name"] for row in rows) == expected.split()
    assert all(row["score"] > 0 for row in rows)
