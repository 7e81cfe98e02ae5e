"""Very common words of each language: they say little about a text."""

# ruff: noqa: RUF001

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from omnigraph.engine.text.words import COMMON, folded

_BY_LANGUAGE: Final[Mapping[str, str]] = {
    "english": COMMON,
    "german": "aber alle als am an auch auf aus bei bin bis da damit das dass dem den der des die "
    "dies diese dieser dieses doch du durch ein eine einem einen einer eines er es für hat hatte "
    "ich ihr im in ist ja kann mit nach nicht noch nur ob oder sein sich sie sind so über um und "
    "uns von vor war was wenn wer wie wir wird zu zum zur",
    "french": "à au aux avec ce ces cette d dans de des du elle en est et être il ils je l la le "
    "les leur leurs lui mais n ne nous on ou où par pas pour qu que qui s sa se ses si son sont "
    "sur tu un une vous y",
    "spanish": "a al algo como con de del e el él ella ellas ellos en entre era es esta este esto "
    "está fue ha hay la las le les lo los me mi más muy no nos o para pero por que qué se ser si "
    "sin sobre son su sus te tu un una unos unas y ya yo",
    "italian": "a ad ai al alla alle allo anche che chi ci come con da dal dalla dei del della "
    "delle dello di e è ed gli ha hanno i il in io l la le lo lui ma mi ne nei nel nella no noi "
    "non o per più quello questo se si sono su sua sue suo sul sulla tra tu un una uno vi voi",
    "portuguese": "a à ao aos as às com como da das de dela dele do dos e é ela ele em entre era "
    "essa esse esta este eu foi há isso isto já lhe mais mas me na nas no nos não o os ou para "
    "pela pelo por que quem se sem ser seu sua são só também te um uma você",
    "dutch": "aan als bij dan dat de der deze die dit door een en er haar had heb heeft het hij "
    "hoe hun ik in is je kan maar me met mijn na naar niet nog nu of om onder ons ook op over te "
    "tot uit van voor was wat we wel werd wie wij worden zal ze zich zij zijn zo zou",
    "swedish": "alla än är att av blev den denna det dig din du efter eller en ett för från ha "
    "hade han har hon i inte jag kan man med men mig min mot nu när och om oss på sig sin som så "
    "till under upp ut vad var vara vi vid",
    "danish": "af alle at blev da de den der deres det dig din dog du efter eller en end er et for "
    "fra ham han har havde hende her hun hvad hvis i ikke ind jeg kan man med men mig min mod når "
    "og også om op os over på sig sin skal som så til ud under var vi vil være",
    "norwegian": "alle at av ble da de deg den der det din du eller en er et etter for fra han har "
    "hun hva hvis i ikke inn jeg kan man med men meg min mot når nå og også om opp oss over på seg "
    "sin skal som så til under ut var ved vi vil være",
    "finnish": "ei eivät että he hän ja jos jotka joka kanssa kuin kun me mikä minä mutta myös ne "
    "niin nyt oli olla on ovat se sekä siitä sitä sinä tai te tämä tästä vai vain",
    "hungarian": "a az az azt be csak de egy el én és ez ezt fel ha hogy is ki kell le lesz meg "
    "mert mi mint nagyon ne nem ő ők szerint te ti van vagy volt",
    "romanian": "a ai al ale am ar are au ca că ce cea cei cel cele cu cum da dar de din după e ea "
    "ei el ele este eu fi fost în iar la le lor lui mai nu o pe pentru prin sa sau se și sunt un "
    "una unde unei unor unui",
    "russian": "а бы был была были было быть в вам вас весь во вот все всё вы где да для до его ее "
    "её если есть ещё же за и из или им их к как ко когда кто ли мне мы на над не него нет ни но о "
    "об он она они оно от по под при с со так также там то только ты у уже что чтобы это этот я",
    "polish": "a aby ale bez być by był była było co czy dla do gdy gdzie go i ich ja jak jako je "
    "jego jej jest już kto który która które lub ma mi mnie na nad nie o od on ona oni po pod przy "
    "przez się są ta tak także tam te ten to tu w we więc z za ze że",
    "czech": "a aby ale ani až být bez byl byla bylo by co či do i já jak jako je jeho její jen ji "
    "jsem jsou k kde když který která které ke má na nad ne nebo než o od on ona oni po pod pro "
    "při s se si tak také ten to tu u v ve za z ze že",
    "turkish": "acaba ama ancak bana bazı belki ben beni bir biz bu bunu çok çünkü da daha de defa "
    "diye en gibi hem her hiç için ile ise kez ki kim mı mi mu mü nasıl ne neden o sanki şey siz "
    "şu tüm ve veya ya yani",
    "greek": "αλλά αν από για δε δεν είναι εκεί ένα ένας η θα και κατά με μη μου να ο οι ότι που "
    "προς σε στη στην στο στον τα τη την της το τους τον του των ως",
    "indonesian": "ada adalah akan atau bahwa bagi dan dapat dari dengan di dia ini itu ia juga "
    "karena ke kami kita mereka oleh pada saya sebagai seperti serta sudah telah tidak untuk yang",
    "catalan": "a al als amb d de del dels el els em en entre és està ha hi i la les li lo més no "
    "o per però que qui s se ser si són un una unes uns va",
    "arabic": "إلى أن أو الذي التي ان إن ثم على عن في قد كان كما لا لم ما مع من هذا هذه هو هي و",
    "persian": "از است اما آن این با بر برای به تا در را که می نیز و هم هر یا یک",
    "hindi": "और एक का कि की के को था थी थे नहीं ने पर भी में यह वह से हो है हैं",
}


def stop_words(language: str | None) -> frozenset[str]:
    """The very common words of a language, folded; none where we know none."""
    return frozenset(map(folded, _BY_LANGUAGE.get(language or "", "").split()))
